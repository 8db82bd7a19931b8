"""The machinery of backward passes: grad modes, the events they record, and the engine that drives them.

May import recorder and ir. Start in engine.py. The public face is treadle.autograd.
"""
