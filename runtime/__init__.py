"""Buffers, programs, executor (C++ core) and JIT linking. Imports nothing of ours."""
