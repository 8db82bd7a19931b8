"""Result dtypes by torch's rules: tensors with dims before 0-d tensors before Python numbers."""

import pytest

import treadle as T

SHORT = {
    "b": T.bool, "u8": T.uint8, "i8": T.int8, "i16": T.int16, "i32": T.int32, "i64": T.int64, "f16": T.float16,
    "bf16": T.bfloat16, "f32": T.float32, "f64": T.float64,
}  # fmt: skip

# Rows and columns in the order of SHORT.
BOTH_WITH_DIMS = """
b b u8 i8 i16 i32 i64 f16 bf16 f32 f64
u8 u8 u8 i16 i16 i32 i64 f16 bf16 f32 f64
i8 i8 i16 i8 i16 i32 i64 f16 bf16 f32 f64
i16 i16 i16 i16 i16 i32 i64 f16 bf16 f32 f64
i32 i32 i32 i32 i32 i32 i64 f16 bf16 f32 f64
i64 i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64
f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""
SECOND_ZERO_DIM = """
b b u8 i8 i16 i32 i64 f16 bf16 f32 f64
u8 u8 u8 u8 u8 u8 u8 f16 bf16 f32 f64
i8 i8 i8 i8 i8 i8 i8 f16 bf16 f32 f64
i16 i16 i16 i16 i16 i16 i16 f16 bf16 f32 f64
i32 i32 i32 i32 i32 i32 i32 f16 bf16 f32 f64
i64 i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64
f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""
# With True, 2, 2.0; for a tensor with dims and for a 0-d tensor.
NUMBERS = """
b b i64 f32
u8 u8 u8 f32
i8 i8 i8 f32
i16 i16 i16 f32
i32 i32 i32 f32
i64 i64 i64 f32
f16 f16 f16 f16
bf16 bf16 bf16 bf16
f32 f32 f32 f32
f64 f64 f64 f64
"""
FUNCTIONS = {
    "x / x": lambda x: x / x, "sum": lambda x: x.sum(), "prod": lambda x: x.prod(), "cumsum": lambda x: x.cumsum(0),
    "sqrt": lambda x: x.sqrt(), "sigmoid": lambda x: x.sigmoid(), "abs": lambda x: x.abs(), "x // x": lambda x: x // x,
    "x % x": lambda x: x % x, "x ** 2": lambda x: x**2, "x ** 0.5": lambda x: x**0.5, "amax": lambda x: x.amax(),
    "any": lambda x: x.any(), "mean": lambda x: x.mean(), "where": lambda x: T.where(x > 0, x, 0.5),
    "round": lambda x: x.round(), "maximum": lambda x: T.maximum(x, T.ones(2, dtype=T.int32)),
}  # fmt: skip
# Results of FUNCTIONS; "-" where torch has no such function ("?" where this is not checked).
RESULTS = """
b f32 i64 i64 i64 f32 f32 ? ? ? i64 f32 b b - f32 ? i32
u8 f32 i64 i64 i64 f32 f32 u8 u8 u8 u8 f32 u8 u8 - f32 u8 i32
i8 f32 i64 i64 i64 f32 f32 i8 i8 i8 i8 f32 i8 b - f32 i8 i32
i16 f32 i64 i64 i64 f32 f32 i16 i16 i16 i16 f32 i16 b - f32 i16 i32
i32 f32 i64 i64 i64 f32 f32 i32 i32 i32 i32 f32 i32 b - f32 i32 i32
i64 f32 i64 i64 i64 f32 f32 i64 i64 i64 i64 f32 i64 b - f32 i64 i64
f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 b f16 f16 f16 f16
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 b bf16 bf16 bf16 bf16
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 b f32 f32 f32 f32
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 b f64 f64 f64 f64
"""


def table(text, columns):
    """(row, column, entry) of a table whose first word of a row is its name."""
    for line in text.strip().splitlines():
        name, *entries = line.split()
        assert len(entries) == len(columns)
        yield from ((name, column, entry) for column, entry in zip(columns, entries))


@pytest.mark.parametrize("a, b, want", [*table(BOTH_WITH_DIMS, list(SHORT))])
def test_tensors_with_dims(a, b, want):
    x, y = T.ones(2, dtype=SHORT[a]), T.ones(2, dtype=SHORT[b])
    assert (x * y).dtype is SHORT[want]
    assert T.promote_types(SHORT[a], SHORT[b]) is SHORT[want]
    assert T.result_type(x, y) is SHORT[want]
    assert T.cat([x, y]).dtype is SHORT[want]
    assert T.where(T.tensor([True, False]), x, y).dtype is SHORT[want]
    assert (x == y).dtype is T.bool
    zero_dim = T.ones((), dtype=SHORT[a]) * T.ones((), dtype=SHORT[b])
    assert zero_dim.dtype is SHORT[want]


@pytest.mark.parametrize("a, b, want", [*table(SECOND_ZERO_DIM, list(SHORT))])
def test_a_zero_dim_tensor_gives_only_its_category(a, b, want):
    x, y = T.ones(2, dtype=SHORT[a]), T.ones((), dtype=SHORT[b])
    assert (x + y).dtype is SHORT[want]
    assert T.maximum(y, x).dtype is SHORT[want]


@pytest.mark.parametrize("a, number, want", [*table(NUMBERS, [True, 2, 2.0])])
def test_python_numbers_give_only_their_category(a, number, want):
    for shape in ((2,), ()):
        x = T.ones(shape, dtype=SHORT[a])
        assert (x * number).dtype is SHORT[want]
        assert (number + x).dtype is SHORT[want]


@pytest.mark.parametrize("a, name, want", [*table(RESULTS, list(FUNCTIONS))])
def test_functions(a, name, want):
    x = T.ones(2, dtype=SHORT[a])
    if want == "-":
        with pytest.raises(RuntimeError):
            FUNCTIONS[name](x)
    elif want != "?":
        got = FUNCTIONS[name](x)
        assert got.dtype is SHORT[want]
        got.realize()


def test_the_default_dtype_decides_for_integers_and_floats():
    T.set_default_dtype(T.float64)
    try:
        assert (T.ones(2, dtype=T.int32) / 2).dtype is T.float64
        assert (T.tensor([1, 2]) * 0.5).dtype is T.float64
        assert T.tensor(0.5).dtype is T.get_default_dtype() is T.float64
        assert (T.ones(2, dtype=T.float32) * 0.5).dtype is T.float32
    finally:
        T.set_default_dtype(T.float32)
    with pytest.raises(TypeError):
        T.set_default_dtype(T.int64)


def test_integers_wrap_and_unsigned_subtract():
    assert (T.tensor([250, 5], dtype=T.uint8) + T.tensor([10, 250], dtype=T.uint8)).tolist() == [4, 255]
    assert (T.tensor([127], dtype=T.int8) + 1).tolist() == [-128]
    assert (T.tensor([2**31 - 1], dtype=T.int32) * 2).tolist() == [-2]
    assert (T.tensor([3], dtype=T.uint8) - T.tensor([5], dtype=T.uint8)).tolist() == [254]
    assert (-T.tensor([-128], dtype=T.int8)).tolist() == [-128]
    assert T.tensor([2**40], dtype=T.int64).to(T.int32).tolist() == [0]


def test_in_place_keeps_the_dtype_or_refuses():
    x = T.ones(2, dtype=T.int32)
    x += T.ones(2, dtype=T.int64)
    assert x.dtype is T.int32
    x *= True
    for bad in (lambda: x.add_(0.5), lambda: x.mul_(T.ones(2)), lambda: x.div_(2), lambda: x.sqrt_()):
        with pytest.raises(RuntimeError, match="can't be cast"):
            bad()
    half = T.ones(2, dtype=T.float16)
    half += T.ones(2, dtype=T.float64)
    assert (half.dtype, half.tolist()) == (T.float16, [2, 2])
