"""2000 random programs, run fused, unfused and in NumPy (fuzz.py says how): 200 first, the others marked slow."""

import numpy as np
import pytest

import treadle as T
from tests.e2e import fuzz

QUICK, ALL = 20, 200  # structures, each run ten times
BLOCK = 10


@pytest.mark.parametrize("seed", range(QUICK))
def test_quick(seed):
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK, ALL, BLOCK))
def test_more(block):
    for seed in range(block, block + BLOCK):
        run(seed)


def run(seed):
    structure = fuzz.generate(seed)
    for size, k in fuzz.instances(structure):
        fuzz.check(structure, size, k, numpy_too=k < 6)


def test_generation_is_reproducible_and_varied():
    assert str(fuzz.generate(3)) == str(fuzz.generate(3))
    structures = [fuzz.generate(seed) for seed in range(40)]
    names = {step.name for s in structures for step in s.steps}
    assert len(names) > 45
    assert sum(s.backward for s in structures) >= 5
    assert all(5 <= len(s.steps) <= 15 for s in structures)


def test_a_wrong_result_is_noticed(monkeypatch):
    original = fuzz.flushing.run_step

    def wrong(step, buffers, scalars, bindings):
        made = original(step, buffers, scalars, bindings)
        for b, t in zip(made, step.types):
            if t.dtype is T.float32 and b.nbytes:
                b.array(np.float32, [b.nbytes // 4])[...] += 1
        return made

    monkeypatch.setattr(fuzz.flushing, "run_step", wrong)
    floats = next(s for s in map(fuzz.generate, range(100)) if s.leaves[0][0] is T.float32 and not s.backward)
    with pytest.raises(fuzz.Mismatch, match="structure"):
        fuzz.check(floats, "small", 0)
