"""Lazy recording: handles (lazy values), the trace tree, and the open trace of each thread.

May import treadle.ir. Start in trace.py (the hot path), then tree.py (what a new edge costs), generalise.py (how one
program serves many sizes and scalars), flush.py (from a trace to a running program).
"""
