"""Elementwise functions and operators: unary, binary, comparison, logic, selection, casts."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ir import dtypes
from treadle.ir.core import Operation
from treadle.ir.dtypes import DType
from treadle.ir.ops import arithmetic as ar
from treadle.ir.ops import logic as lo
from treadle.ir.ops import transcendental as tr
from treadle.ops.registration import PUBLIC, assign, public, type_name
from treadle.recorder.build import RuntimeScalar, default_dtype
from treadle.recorder.trace import binary_recorder, record, record1
from treadle.recorder.tree import intern_operation
from treadle.storage import check_writable
from treadle.tensor import Tensor

__all__ = ["MUL", "as_operand", "cast", "number", "where"]


def number(value: Any) -> Any:
    """A Python scalar operand (NumPy scalars become Python's); None where it is not a number."""
    if isinstance(value, bool | int | float):
        return value if type(value) in (bool, int, float) else value.__class__.__mro__[-2](value)
    if type(value) is RuntimeScalar:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral | np.integer):
        return int(value)
    if isinstance(value, numbers.Real | np.floating):
        return float(value)
    return None


def as_operand(name: str, value: Any, position: int = 2) -> Any:
    """A tensor or number operand. Raises TypeError like torch on anything else."""
    if isinstance(value, Tensor):
        return value
    found = number(value)
    if found is None:
        raise TypeError(f"{name}(): argument 'other' (position {position}) must be Tensor, not {type(value).__name__}")
    return found


def need_tensor(name: str, value: Any, argument: str = "input", position: int = 1) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type(value).__name__}"
        )


# ---- unary ------------------------------------------------------------------------------------------------------------


def _unary(name: str, operation: Operation, inplace: bool = True, aliases: tuple[str, ...] = ()) -> Callable:
    op = intern_operation(operation)
    op_id = id(op)

    def f(input: Tensor) -> Tensor:
        try:
            return record1(op, op_id, input)
        except AttributeError:
            need_tensor(name, input)
            raise

    f.__name__ = f.__qualname__ = name
    f.__doc__ = type(operation).__doc__
    return public(inplace=inplace, aliases=aliases)(f)


def _floats_only(f: Callable, name: str) -> Callable:
    """Integers stay as they are (floor of an integer)."""

    def g(input: Tensor) -> Tensor:
        need_tensor(name, input)
        if not input.dtype.is_floating:
            if input.dtype is dtypes.bool_:
                raise RuntimeError(f"\"{name}\" not implemented for 'Bool'")
            return input.clone()
        return f(input)

    g.__name__ = g.__qualname__ = name
    g.__doc__ = f.__doc__
    return public(inplace=True)(g)


neg = _unary("neg", ar.Neg(), aliases=("negative",))
abs = _unary("abs", ar.Abs(), aliases=("absolute",))
sign = _unary("sign", ar.Sign(), aliases=("sgn",))
_square = _unary("square", ar.Square())


@public(inplace=True)
def square(input: Tensor) -> Tensor:
    """input ** 2; bools count as integers."""
    need_tensor("square", input)
    return _square(cast(input, dtypes.int64) if input.dtype is dtypes.bool_ else input)


for _name, _cls in (("floor", ar.Floor), ("ceil", ar.Ceil), ("trunc", ar.Trunc)):
    globals()[_name] = _floats_only(_unary(_name, _cls()), _name)
PUBLIC["fix"] = PUBLIC["trunc"]
Tensor.fix = Tensor.trunc  # type: ignore[attr-defined]
for _name in (
    "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "erfinv", "lgamma",
    "digamma",
):  # fmt: skip
    _module = ar if hasattr(ar, _name.capitalize()) else tr
    _more = {"asin": ("arcsin",), "acos": ("arccos",), "atan": ("arctan",), "asinh": ("arcsinh",), "acosh": ("arccosh",),
             "atanh": ("arctanh",)}  # fmt: skip
    globals()[_name] = _unary(_name, getattr(_module, _name.capitalize())(), aliases=_more.get(_name, ()))
for _name in ("erf", "erfc", "erfinv", "expm1", "exp2", "log1p", "digamma"):
    PUBLIC[f"special.{_name}"] = PUBLIC[_name]
PUBLIC["special.expit"] = PUBLIC["sigmoid"]
PUBLIC["special.gammaln"] = PUBLIC["lgamma"]
logical_not = _unary("logical_not", lo.LogicalNot())
bitwise_not = _unary("bitwise_not", lo.BitwiseNot())
_isnan, _isinf, _isfinite = (
    _unary(n, c(), inplace=False) for n, c in (("isnan", lo.Isnan), ("isinf", lo.Isinf), ("isfinite", lo.Isfinite))
)


def _float_test(name: str, f: Callable, of_integers: bool) -> Callable:
    def g(input: Tensor) -> Tensor:
        need_tensor(name, input)
        return f(input) if input.dtype.is_floating else input.new_full(input.shape, of_integers, dtype=dtypes.bool_)

    g.__name__ = g.__qualname__ = name
    g.__doc__ = f.__doc__
    return public(out=False)(g)


isnan = _float_test("isnan", _isnan, False)
isinf = _float_test("isinf", _isinf, False)
isfinite = _float_test("isfinite", _isfinite, True)

_ROUND = intern_operation(ar.Round())


@public(inplace=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest integer, ties to even; `decimals` digits after (before, if negative) the point."""
    need_tensor("round", input)
    if not input.dtype.is_floating:
        if decimals:
            raise RuntimeError("round_cpu: decimals is only supported for floating point tensors")
        return input.clone()
    if not decimals:
        return record1(_ROUND, id(_ROUND), input)
    ten = 10.0 ** (decimals if decimals > 0 else -decimals)
    scaled = input * ten if decimals > 0 else input / ten
    rounded = record1(_ROUND, id(_ROUND), scaled)
    return rounded / ten if decimals > 0 else rounded * ten


@public(inplace=True)
def frac(input: Tensor) -> Tensor:
    """input - trunc(input)."""
    return input - input.trunc()


@public(inplace=True)
def positive(input: Tensor) -> Tensor:
    """The input itself. Raises RuntimeError for bool."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# ---- binary -----------------------------------------------------------------------------------------------------------

_ADD, _SUB, MUL, _DIV = map(intern_operation, (ar.Add(), ar.Sub(), ar.Mul(), ar.Div()))
_FLOORDIV, _TRUNCDIV = intern_operation(ar.FloorDiv()), intern_operation(ar.TruncDiv())


def _operator(op: Operation, reverse: bool = False) -> Callable:
    """A dunder method: fast for tensors, NotImplemented for what is not a number."""
    fast = binary_recorder(op)

    def forward(self: Tensor, other: Any) -> Any:
        try:
            return fast(self, other)
        except AttributeError:
            if hasattr(other, "_h"):
                raise
        value = number(other)
        if value is None:
            return fast(self, PUBLIC["tensor"](other)) if isinstance(other, np.ndarray) else NotImplemented
        return record(op, self, value)

    def backward(self: Tensor, other: Any) -> Any:
        value = number(other)
        if value is None:
            return fast(PUBLIC["tensor"](other), self) if isinstance(other, np.ndarray) else NotImplemented
        return record(op, value, self)

    return backward if reverse else forward


def _binary(
    name: str, operation: Operation, inplace: bool = True, aliases: tuple[str, ...] = (), numbers: str = "both"
) -> Callable:
    """A function of two operands, of which `numbers` ("both", "second", "none") may be Python numbers, one at most."""
    op = intern_operation(operation)
    fast = binary_recorder(op)

    def f(input: Tensor, other: Any) -> Tensor:
        if isinstance(other, Tensor) and isinstance(input, Tensor):
            return fast(input, other)
        if not isinstance(input, Tensor) and (numbers != "both" or not isinstance(other, Tensor)):
            need_tensor(name, input)
        if numbers == "none":
            need_tensor(name, other, "other", 2)
        return record(op, as_operand(name, input, 1), as_operand(name, other))

    f.__name__ = f.__qualname__ = name
    f.__doc__ = type(operation).__doc__
    return public(inplace=inplace, aliases=aliases)(f)


for _dunder, _op in (("add", _ADD), ("mul", MUL), ("truediv", _DIV)):
    setattr(Tensor, f"__{_dunder}__", _operator(_op))
    setattr(Tensor, f"__r{_dunder}__", _operator(_op, True))


def _check_sub(a: Any, b: Any) -> None:
    for x in (a, b):
        if (isinstance(x, Tensor) and x.dtype is dtypes.bool_) or isinstance(x, bool):
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
                "mask, "
                "use the `~` or `logical_not()` operator instead."
            )


_sub, _rsub = _operator(_SUB), _operator(_SUB, True)


def _sub_operator(self: Tensor, other: Any) -> Any:
    if (
        self._h.type.dtype is dtypes.bool_
        or other.__class__ is bool
        or (isinstance(other, Tensor) and other.dtype is dtypes.bool_)
    ):
        _check_sub(self, other)
    return _sub(self, other)


def _rsub_operator(self: Tensor, other: Any) -> Any:
    _check_sub(self, other)
    return _rsub(self, other)


Tensor.__sub__, Tensor.__rsub__ = _sub_operator, _rsub_operator  # type: ignore[assignment]


def _scaled(name: str, other: Any, alpha: Any, like: Any) -> Any:
    if isinstance(alpha, Tensor):
        alpha = alpha.item()
    if type(alpha) is not RuntimeScalar and alpha == 1:
        return other
    if (
        isinstance(alpha, float)
        and not like.dtype.is_floating
        and not (isinstance(other, Tensor) and other.dtype.is_floating)
    ):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(other, Tensor):
        return record(MUL, other, number(alpha))
    scale = alpha.value if type(alpha) is RuntimeScalar else alpha
    return RuntimeScalar(other * scale) if type(alpha) is RuntimeScalar else other * scale


@public(inplace=True)
def add(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other, broadcast and promoted."""
    if alpha.__class__ is int and alpha == 1 and isinstance(input, Tensor) and isinstance(other, Tensor):
        return binary_recorder(_ADD)(input, other)
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        need_tensor("add", input)
    other = as_operand("add", other)
    like = input if isinstance(input, Tensor) else other
    return record(_ADD, as_operand("add", input, 1), _scaled("add", other, alpha, like))


@public(inplace=True, aliases=("subtract",))
def sub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other, broadcast and promoted."""
    _check_sub(input, other)
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        need_tensor("sub", input)
    other = as_operand("sub", other)
    like = input if isinstance(input, Tensor) else other
    return record(_SUB, as_operand("sub", input, 1), _scaled("sub", other, alpha, like))


@public()
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    need_tensor("rsub", input)
    _check_sub(input, other)
    return record(_SUB, as_operand("rsub", other), _scaled("rsub", input, alpha, input))


mul = _binary("mul", ar.Mul(), aliases=("multiply",))


@public(inplace=True, aliases=("divide",))
def div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Quotient: true (floating) by default, `rounding_mode` "floor" or "trunc" keep the common dtype."""
    if rounding_mode is None:
        op = _DIV
    elif rounding_mode in ("floor", "trunc"):
        op = _FLOORDIV if rounding_mode == "floor" else _TRUNCDIV
        _check_zero(input, other)
    else:
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    return record(op, as_operand("div", input, 1), as_operand("div", other))


def _check_zero(input: Any, other: Any) -> None:
    """torch raises at once where a constant integer divisor is zero."""
    integers = not (isinstance(input, Tensor) and input.dtype.is_floating) and not isinstance(input, float)
    if integers and type(other) in (int, bool) and other == 0:
        raise RuntimeError("ZeroDivisionError")


@public(inplace=True)
def true_divide(input: Tensor, other: Any) -> Tensor:
    """The floating quotient."""
    return div(input, other)


@public(inplace=True)
def floor_divide(input: Tensor, other: Any) -> Tensor:
    """Quotient rounded down."""
    return div(input, other, rounding_mode="floor")


def _checked_int_op(name: str, cls: type, numbers: str = "both") -> Callable:
    f = _binary(name, cls(), inplace=False, numbers=numbers)

    def g(input: Tensor, other: Any) -> Tensor:
        _check_zero(input, other)
        return f(input, other)

    g.__name__ = g.__qualname__ = name
    g.__doc__ = f.__doc__
    return public(inplace=True)(g)


remainder = _checked_int_op("remainder", ar.Remainder)
fmod = _checked_int_op("fmod", ar.Fmod, "second")


def _function_operator(f: Callable, reverse: bool = False) -> Callable:
    def method(self: Tensor, other: Any) -> Any:
        if not isinstance(other, Tensor) and number(other) is None:
            return NotImplemented
        return f(other, self) if reverse else f(self, other)

    return method


for _dunder, _f in (("floordiv", floor_divide), ("mod", remainder)):
    setattr(Tensor, f"__{_dunder}__", _function_operator(_f))
    setattr(Tensor, f"__r{_dunder}__", _function_operator(_f, True))

_POW = intern_operation(ar.Pow())


@public(inplace=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """input ** exponent. Raises RuntimeError for integers to a negative constant power."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError(
            f"pow() received an invalid combination of arguments - got ({type(input).__name__}, "
            f"{type(exponent).__name__})"
        )
    e = as_operand("pow", exponent)
    if type(e) is int and e < 0 and isinstance(input, Tensor) and not input.dtype.is_floating:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return record(_POW, as_operand("pow", input, 1), e)


Tensor.__pow__ = _function_operator(pow)  # type: ignore[attr-defined]
Tensor.__rpow__ = _function_operator(pow, True)  # type: ignore[attr-defined]


@public(inplace=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """input ** exponent in float64."""
    base = input.double() if isinstance(input, Tensor) else float(input)
    return pow(base, exponent.double() if isinstance(exponent, Tensor) else float(exponent))


maximum = _binary("maximum", ar.Maximum(), inplace=False, numbers="none")
minimum = _binary("minimum", ar.Minimum(), inplace=False, numbers="none")
fmax = _binary("fmax", ar.Fmax(), inplace=False, numbers="none")
fmin = _binary("fmin", ar.Fmin(), inplace=False, numbers="none")
atan2 = _binary("atan2", tr.Atan2(), aliases=("arctan2",), numbers="none")
hypot = _binary("hypot", tr.Hypot(), numbers="none")
copysign = _binary("copysign", lo.Copysign(), numbers="second")
nextafter = _binary("nextafter", lo.Nextafter(), numbers="none")

# ---- comparison and logic ---------------------------------------------------------------------------------------------

_COMPARE = {
    "eq": lo.Eq(), "ne": lo.Ne(), "lt": lo.Lt(), "le": lo.Le(), "gt": lo.Gt(), "ge": lo.Ge(),
}  # fmt: skip
_LONG = {
    "ne": ("not_equal",),
    "lt": ("less",),
    "le": ("less_equal",),
    "gt": ("greater",),
    "ge": ("greater_equal",),
    "eq": (),
}
for _name, _op in _COMPARE.items():
    globals()[_name] = _binary(_name, _op, aliases=_LONG[_name], numbers="second")
    setattr(Tensor, f"__{_name}__", _operator(intern_operation(_op)))
for _name, _cls in (("logical_and", lo.LogicalAnd), ("logical_or", lo.LogicalOr), ("logical_xor", lo.LogicalXor)):
    globals()[_name] = _binary(_name, _cls(), numbers="none")
_BITWISE = {"and": lo.BitwiseAnd(), "or": lo.BitwiseOr(), "xor": lo.BitwiseXor()}
for _name, _op in _BITWISE.items():
    globals()[f"bitwise_{_name}"] = _binary(f"bitwise_{_name}", _op)
    setattr(Tensor, f"__{_name}__", _operator(intern_operation(_op)))
    setattr(Tensor, f"__r{_name}__", _operator(intern_operation(_op), True))
bitwise_left_shift = _binary("bitwise_left_shift", lo.ShiftLeft())
bitwise_right_shift = _binary("bitwise_right_shift", lo.ShiftRight())
for _dunder, _cls in (("lshift", lo.ShiftLeft), ("rshift", lo.ShiftRight)):
    setattr(Tensor, f"__{_dunder}__", _operator(intern_operation(_cls())))
    setattr(Tensor, f"__r{_dunder}__", _operator(intern_operation(_cls()), True))
Tensor.__neg__ = Tensor.neg  # type: ignore[attr-defined]
Tensor.__pos__ = Tensor.positive  # type: ignore[attr-defined]
Tensor.__abs__ = Tensor.abs  # type: ignore[attr-defined]
Tensor.__invert__ = Tensor.bitwise_not  # type: ignore[attr-defined]


def _augmented(name: str, method: str) -> None:
    def f(self: Tensor, other: Any) -> Any:
        if not isinstance(other, Tensor) and number(other) is None and not isinstance(other, np.ndarray):
            return NotImplemented
        check_writable(self)
        return assign(self, getattr(self, method)(other))

    setattr(Tensor, name, f)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    _augmented(f"__i{_name}__", f"__{_name}__")

# ---- selection --------------------------------------------------------------------------------------------------------

_SELECT = intern_operation(lo.Select())


@public(function=True, method=False)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where condition, else other (broadcast, promoted); with only a condition, indices of its true elements."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    need_tensor("where", condition, "condition")
    if condition.dtype is dtypes.uint8:
        condition = condition.bool()
    if condition.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {type_name(condition.dtype)}"
        )
    return record(_SELECT, condition, as_operand("where", input), as_operand("where", other, 3))


def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition, else other."""
    return where(condition, self, other)


Tensor.where = _where_method  # type: ignore[attr-defined]


@public(inplace=True, aliases=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limit to [min, max]; either may be None, a number or a tensor. NaN stays NaN; where min > max the result is max."""
    need_tensor("clamp", input)
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None:
        input = record(_MAXIMUM, input, as_operand("clamp", min))
    return input if max is None else record(_MINIMUM, input, as_operand("clamp", max, 3))


_MAXIMUM, _MINIMUM = intern_operation(ar.ClampMin()), intern_operation(ar.ClampMax())


@public(inplace=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """max(input, min)."""
    return clamp(input, min=min)


@public(inplace=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """min(input, max)."""
    return clamp(input, max=max)


# ---- casts ------------------------------------------------------------------------------------------------------------

_casts = {d: intern_operation(lo.Cast(d)) for d in dtypes.DTYPES.values()}


def cast(t: Tensor, dtype: DType) -> Tensor:
    """`t` in `dtype`; `t` itself where it already is."""
    if t._h.type.dtype is dtype:
        return t
    op = _casts[dtype]
    return record1(op, id(op), t)


def _cast_method(name: str, dtype: DType) -> None:
    def f(self: Tensor, memory_format: Any = None) -> Tensor:
        return cast(self, dtype)

    f.__name__ = name
    f.__doc__ = f"Elements as {dtype.name}; the tensor itself where it has that dtype."
    setattr(Tensor, name, f)


for _name, _dtype in (
    ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
    ("long", dtypes.int64), ("int", dtypes.int32), ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8),
    ("bool", dtypes.bool_),
):  # fmt: skip
    _cast_method(_name, _dtype)


def to_floating(t: Tensor) -> Tensor:
    """Integers and bools as the default floating dtype."""
    return t if t.dtype.is_floating else cast(t, default_dtype())
