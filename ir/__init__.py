"""Types, values, ops and text of the IR. Imports nothing of ours. Start reading in core.py, then ops/base.py."""
