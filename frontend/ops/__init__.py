"""torch's functions and Tensor methods, by family, on top of the recorder.

Each function checks its arguments, then records one or a few ops. `registration.py` makes a function public: as
`treadle.name`, as a Tensor method, with its in-place form and `out=`. May import all rooms. Start in elementwise.py.
"""
