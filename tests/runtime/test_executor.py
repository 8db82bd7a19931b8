"""Runs: results, order, errors, donation, threads, forks."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.kernels import blob, chain
from treadle import runtime
from treadle.runtime import Buffer, DimTable, KernelCode, Launch, ProgramSpec, Slot, SlotKind, load, submit

F32 = np.float32


def floats(buffer: Buffer) -> np.ndarray:
    return buffer.array(F32, (buffer.nbytes // 4,))


def of(values: object) -> Buffer:
    return Buffer.from_bytes(np.asarray(values, F32).tobytes())


def two_input_program(kernel: str = "add", *, alias: int = 0, read_first: bool = False, n: int = 4) -> runtime.Program:
    """out = kernel(in0, in1), where out may take over in0."""
    dims = DimTable()
    size, count, grain, none = dims.const(4 * n), dims.const(n), dims.const(1024), dims.const(0)
    slots = (
        Slot(SlotKind.INPUT, 0, size),
        Slot(SlotKind.INPUT, 1, size),
        Slot(SlotKind.OUTPUT, 0, size, alias=alias, read_first=read_first),
    )
    return load(
        ProgramSpec(
            name="two",
            inputs=2,
            outputs=1,
            dims=dims.expressions(),
            slots=slots,
            launches=(Launch(0, (0, 1, 2), (), count, grain, none, 0),),
            kernels=(KernelCode(kernel, 0),),
            locations=("model.py:7",),
            blobs=(blob(),),
        )
    )


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7, 1024, 100_003])
@pytest.mark.parametrize("work", [True, False])
def test_chain_of_kernels(threads: int, n: int, work: bool) -> None:
    runtime.set_num_threads(threads)
    program = load(chain(["increment"] * 5, grain=16, work=work))
    values = np.random.default_rng(0).standard_normal(n).astype(F32)
    expected = values
    for _ in range(5):
        expected = expected + F32(1)
    for _ in range(5):
        (out,) = submit(program, [of(values)], symbols=[n])
        np.testing.assert_array_equal(floats(out), expected)


def test_runs_keep_their_order_and_their_inputs() -> None:
    program = load(chain(["slow", "increment"], n=3, ints=(1000,)))
    value = of([0, 1, 2])
    for _ in range(300):  # more than the queue holds
        (value,) = submit(program, [value])
    assert floats(value).tolist() == [300, 301, 302]


def test_submission_returns_before_the_result_is_there() -> None:
    program = load(chain(["slow"], n=1, ints=(100_000_000,)))
    (out,) = submit(program, [of([5])])
    assert not out.ready
    out.wait()
    assert out.ready
    assert floats(out).tolist() == [5]


def test_waiting_lets_other_threads_run() -> None:
    program = load(chain(["slow"], n=1, ints=(100_000_000,)))
    (out,) = submit(program, [of([5])])
    waiter = threading.Thread(target=out.wait)
    waiter.start()
    count = 0
    while waiter.is_alive():
        count += 1
    assert count > 100


def test_small_runs_execute_in_the_caller_when_nothing_is_queued() -> None:
    program = load(chain(["increment"], work=True))
    runtime.synchronize()
    before = runtime.executor_stats()
    (out,) = submit(program, [of([1, 2])], symbols=[2])
    assert out.ready
    after = runtime.executor_stats()
    assert after["inline_programs"] == before["inline_programs"] + 1
    assert after["programs"] == before["programs"] + 1
    assert after["launches"] == before["launches"] + 1
    slow = load(chain(["slow"], n=1, ints=(100_000_000,)))
    big = submit(slow, [of([0])])
    (small,) = submit(program, [out], symbols=[2])  # behind `big`
    assert floats(small).tolist() == [3, 4]
    big[0].wait()
    assert runtime.executor_stats()["inline_programs"] == after["inline_programs"]


def test_concurrent_submitters() -> None:
    program = load(chain(["increment"] * 3, work=True))
    failures = []

    def run(seed: int) -> None:
        for step in range(200):
            n = 1 + (seed * 31 + step * 17) % 9000
            (out,) = submit(program, [of(np.full(n, step))], symbols=[n])
            (out,) = submit(program, [out], [True], symbols=[n])
            if not (floats(out) == step + 6).all():
                failures.append((seed, step))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_failed_checks_name_message_and_location_and_poison_what_follows() -> None:
    checked = load(chain(["increment", "checked_copy", "increment"], n=3))
    plain = load(chain(["increment"], n=3))
    good = of([1, 2, 3])
    (bad,) = submit(checked, [of([1, -5, 3])])
    (after,) = submit(plain, [bad])
    (sound,) = submit(checked, [good])
    for buffer in (bad, after):
        with pytest.raises(IndexError, match=r"^a negative element\n  at model.py:2$"):
            buffer.wait()
        with pytest.raises(IndexError):
            buffer.array(F32, (3,))
        with pytest.raises(IndexError):
            _ = buffer.data_ptr
    assert floats(sound).tolist() == [3, 4, 5]
    assert floats(good).tolist() == [1, 2, 3]
    runtime.synchronize()  # errors stay with their buffers


def test_a_check_that_fails_in_one_chunk_of_many() -> None:
    runtime.set_num_threads(4)
    program = load(chain(["checked_copy"], grain=10))
    for at in (0, 5000, 99_999):
        values = np.ones(100_000)
        values[at] = -1
        (out,) = submit(program, [of(values)], symbols=[100_000])
        with pytest.raises(IndexError):
            out.wait()


def test_donated_memory_is_reused() -> None:
    program = two_input_program()
    a, b = of([1, 2, 3, 4]), of([10, 20, 30, 40])
    address = a.data_ptr
    (out,) = submit(program, [a, b], [True, False])
    assert out is a
    assert out.data_ptr == address
    assert floats(out).tolist() == [11, 22, 33, 44]
    assert floats(b).tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("why", ["kept", "exported", "foreign", "twice", "size"])
def test_memory_that_others_see_is_not_reused(why: str) -> None:
    array = np.array([1, 2, 3, 4], F32)
    program = two_input_program()
    a = Buffer.from_numpy(array) if why == "foreign" else of([1, 2, 3, 4, 5] if why == "size" else array)
    view = floats(a) if why == "exported" else None
    b = a if why == "twice" else of([1, 2, 3, 4])
    (out,) = submit(program, [a, b], [why != "kept", False])
    assert out is not a
    assert floats(out).tolist() == [2, 4, 6, 8]
    assert floats(a)[:4].tolist() == [1, 2, 3, 4]
    del view


def test_required_donation_writes_foreign_memory() -> None:
    array = np.array([1, 2, 3, 4], F32)
    a = Buffer.from_numpy(array)
    (out,) = submit(two_input_program(), [a, of([1, 1, 1, 1])], [runtime.REQUIRE, False])
    out.wait()
    assert out is a
    assert array.tolist() == [2, 3, 4, 5]


def test_required_donation_that_cannot_be_had_is_refused() -> None:
    program = two_input_program()
    a, b = of([1, 2, 3, 4]), of([1, 2, 3, 4])
    with pytest.raises(ValueError, match="cannot be overwritten"):
        submit(program, [a, a], [runtime.REQUIRE, False])
    with pytest.raises(ValueError, match="no output"):
        submit(program, [a, b], [False, runtime.REQUIRE])
    frozen = np.zeros(4, F32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="cannot be overwritten"):
        submit(program, [Buffer.from_numpy(frozen), b], [runtime.REQUIRE, False])
    assert a.ready


def test_outputs_that_update_part_of_an_input_begin_with_its_contents() -> None:
    dims = DimTable()
    size, one, grain, none, start = (dims.const(v) for v in (16, 1, 1, 0, 50))
    spec = ProgramSpec(
        name="first",
        inputs=1,
        outputs=1,
        dims=dims.expressions(),
        slots=(Slot(SlotKind.OUTPUT, 0, size, alias=0, read_first=True),),
        launches=(Launch(0, (0, 0), (start,), one, grain, none, 0),),
        kernels=(KernelCode("iota", 0),),
        locations=("here",),
        blobs=(blob(),),
    )
    program = load(spec)
    a = of([1, 2, 3, 4])
    (copied,) = submit(program, [a])
    assert floats(copied).tolist() == [50, 2, 3, 4]
    assert floats(a).tolist() == [1, 2, 3, 4]
    (updated,) = submit(program, [a], [True])
    assert updated is a
    assert floats(a).tolist() == [50, 2, 3, 4]


def test_donated_inputs_survive_a_failure_before_their_update() -> None:
    dims = DimTable()
    size, count, grain, scratch = (dims.const(v) for v in (16, 4, 1024, 64))
    spec = ProgramSpec(
        name="check, then update",
        inputs=2,
        outputs=2,
        dims=dims.expressions(),
        slots=(
            Slot(SlotKind.INPUT, 0, size),
            Slot(SlotKind.INPUT, 1, size),
            Slot(SlotKind.OUTPUT, 0, size),
            Slot(SlotKind.OUTPUT, 1, size, alias=1),
        ),
        launches=(Launch(0, (0, 2), (), count, grain, scratch, 0), Launch(1, (1, 3), (), count, grain, scratch, 0)),
        kernels=(KernelCode("checked_copy", 0), KernelCode("increment", 0)),
        locations=("here",),
        blobs=(blob(),),
    )
    program = load(spec)
    weight = of([1, 2, 3, 4])
    loss, new = submit(program, [of([-1, 0, 0, 0]), weight], [True, True])
    assert new is weight
    with pytest.raises(RuntimeError, match="check 2"):
        loss.wait()
    with pytest.raises(RuntimeError):
        weight.wait()
    assert not loss.recover()
    assert weight.recover()
    assert floats(weight).tolist() == [1, 2, 3, 4]


def test_scalars_are_rounded_to_their_type() -> None:
    for dtype, numpy_type in (("f32", np.float32), ("f16", np.float16)):
        program = scale_program(dtype)
        for value in (0.1, -1.0, 1e-3, 2.0):
            (out,) = submit(program, [of([3])], scalars=[value])
            if dtype == "f32":
                assert floats(out)[0] == F32(3) * numpy_type(value)
    program = scale_program("f32")
    first = submit(program, [of([3])], scalars=[2])
    second = submit(program, [of([3])], scalars=[np.float32(7)])
    assert floats(first[0]).tolist() == [6]
    assert floats(second[0]).tolist() == [21]
    with pytest.raises(ValueError, match="scalar"):
        submit(program, [of([3])], scalars=["x"])
    with pytest.raises(ValueError, match="1 scalars"):
        submit(program, [of([3])])


def scale_program(dtype: str) -> runtime.Program:
    dims = DimTable()
    size, one, none = (dims.const(v) for v in (4, 1, 0))
    spec = ProgramSpec(
        name="scale",
        inputs=1,
        outputs=1,
        dims=dims.expressions(),
        slots=(Slot(SlotKind.INPUT, 0, size), Slot(SlotKind.OUTPUT, 0, size), Slot(SlotKind.SCALAR, 0, size)),
        launches=(Launch(0, (0, 1, 2), (), one, one, none, 0),),
        kernels=(KernelCode("scale", 0),),
        locations=("here",),
        scalars=(dtype,),
        blobs=(blob(),),
    )
    return load(spec)


def test_operands_that_do_not_fit_are_refused_at_once() -> None:
    program = load(chain(["increment"]))
    value = of([1, 2, 3])
    with pytest.raises(ValueError, match=r"has 12 bytes, needs 16"):
        submit(program, [value], symbols=[4])
    with pytest.raises(ValueError, match="takes 1 buffers"):
        submit(program, [], symbols=[3])
    with pytest.raises(ValueError, match="1 symbols, got 2"):
        submit(program, [value], symbols=[3, 3])
    with pytest.raises(ValueError, match="negative"):
        submit(program, [value], symbols=[-3])
    with pytest.raises(ValueError, match="64 bits"):
        submit(program, [value], symbols=[1 << 62])
    with pytest.raises(TypeError, match="Buffer"):
        submit(program, [np.zeros(3)], symbols=[3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="donated"):
        submit(program, [value], [True, True], symbols=[3])
    assert floats(submit(program, [value], symbols=[3])[0]).tolist() == [2, 3, 4]


def test_out_of_memory_names_place_and_size_and_leaves_inputs() -> None:
    program = load(chain(["increment"]))
    n = 1 << 20
    value = of(np.ones(n))
    runtime.empty_cache()
    runtime.set_memory_limit(runtime.memory_stats()["allocated"] + (1 << 20))
    (out,) = submit(program, [value], symbols=[n])
    with pytest.raises(MemoryError, match=r"allocating \d+ bytes for .*chain"):
        out.wait()
    runtime.set_memory_limit(0)
    assert floats(submit(program, [value], symbols=[n])[0])[0] == 2
    assert floats(value)[0] == 1


def test_inputs_are_released_after_their_run() -> None:
    array = np.ones(1, F32)
    alive = weakref.ref(array)
    program = load(chain(["slow"], n=1, ints=(100_000_000,)))
    (out,) = submit(program, [Buffer.from_numpy(array)])
    del array
    assert alive() is not None
    out.wait()
    gc.collect()
    assert alive() is None


def test_temps_use_one_arena_that_is_returned() -> None:
    program = load(chain(["increment"] * 4, grain=1 << 20))
    submit(program, [of([0])], symbols=[1])[0].wait()  # the worker's scratch memory stays with it
    before = runtime.memory_stats()
    (out,) = submit(program, [of(np.zeros(1 << 18))], symbols=[1 << 18])
    out.wait()
    assert runtime.memory_stats()["allocated"] == before["allocated"] + (1 << 20)


def test_many_launches_spread_over_threads() -> None:
    runtime.set_num_threads(3)
    program = load(chain(["increment"] * 200, grain=1))
    for n in (2, 3, 17):
        (out,) = submit(program, [of(np.zeros(n))], symbols=[n])
        assert floats(out).tolist() == [200] * n


def test_thread_counts() -> None:
    assert runtime.available_cores() >= 1
    runtime.set_num_threads(3)
    assert runtime.get_num_threads() == 3
    with pytest.raises(ValueError):
        runtime.set_num_threads(0)
    code = "from treadle import runtime; print(runtime.get_num_threads())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"TREADLE_NUM_THREADS": "7"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "7"


def in_fresh_process(code: str) -> str:
    """Output of a Python process that can import the test kernels."""
    header = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    header += "import numpy as np\nfrom tests.runtime.kernels import chain\nfrom treadle import runtime\n"
    header += "from treadle.runtime import Buffer, load, submit\n"
    done = subprocess.run(
        [sys.executable, "-c", header + code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_exit_while_runs_are_queued() -> None:
    in_fresh_process(
        """
program = load(chain(["slow"], n=1, ints=(3_000_000,)))
array = np.ones(1, "f4")
outs = [submit(program, [Buffer.from_numpy(array)])[0] for _ in range(40)]
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_children_run_programs() -> None:
    text = in_fresh_process(
        """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
runtime.set_num_threads(2)
program = load(chain(["slow", "increment"], ints=(1000,), grain=1))
n = 100
(pending,) = submit(program, [Buffer.from_bytes(bytes(4 * n))], symbols=[n])
pid = os.fork()
(out,) = submit(program, [pending], symbols=[n])
good = (out.array("f4", (n,)) == 2).all()
if pid == 0:
    os._exit(0 if good else 1)
print(good, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    )
    assert text.split() == ["True", "0"]


def test_threads_that_wait_and_the_worker_share_the_runs() -> None:
    """Whoever is first executes the next run, and nobody a run that is not there yet."""
    program = load(chain(["slow", "increment"], n=1, ints=(300,)))
    wrong: list[float] = []

    def use(seed: int) -> None:
        choose = np.random.default_rng(seed)
        value, steps = of([seed]), 0
        for _ in range(1500):
            (value,) = submit(program, [value])
            steps += 1
            if choose.random() < 0.5 and floats(value).tolist() != [seed + steps]:
                wrong.append(seed)

    threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
