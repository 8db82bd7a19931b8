"""The parts of `treadle.nn.functional`, one file a theme."""
