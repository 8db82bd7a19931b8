"""Matrix products: matmul, mm, bmm, addmm, einsum, tensordot, outer; all one contraction each."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from treadle.ir import dtypes
from treadle.ir.ops.contraction import Contract
from treadle.ops.arguments import axis
from treadle.ops.elementwise import need_tensor
from treadle.ops.registration import PUBLIC, public, type_name
from treadle.recorder.trace import record
from treadle.tensor import Tensor

__all__ = ["einsum", "matmul"]


def _same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype!r} != {b.dtype!r}")


def contract(a: Tensor, b: Tensor, lhs: str, rhs: str, out: str) -> Tensor:
    """One contraction by einsum letters."""
    return record(Contract(lhs, rhs, out), a, b)


@public()
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product with torch's broadcasting: vectors, matrices, batches. Raises RuntimeError naming the shapes."""
    need_tensor("matmul", input)
    need_tensor("matmul", other, "other", 2)
    m, n = input.ndim, other.ndim
    if m == 2 and n == 2:
        return mm(input, other)
    if not m or not n:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {m}D and {n}D")
    _same_dtype("matmul", input, other)
    if m == 1 and n == 1:
        return dot(input, other)
    if m == 1:
        return matmul(input.unsqueeze(0), other).squeeze(-2)
    if n == 1:
        return matmul(input, other.unsqueeze(1)).squeeze(-1)
    if input.shape[-1] != other.shape[-2]:
        if m == n == 3:
            raise RuntimeError(
                f"Expected size for first two dimensions of batch2 tensor to be: [{input.shape[0]}, "
                f"{input.shape[-1]}] but got: [{other.shape[0]}, {other.shape[-2]}]."
            )
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, input.shape))} and "
            f"{'x'.join(map(str, other.shape))})"
        )
    if n == 2:  # one big product: rows of all batches
        lead = string.ascii_lowercase[: m - 1]
        return contract(input, other, lead + "y", "yz", lead + "z")
    batch = PUBLIC["broadcast_shapes"](input.shape[:-2], other.shape[:-2])
    a = input if input.shape[:-2] == batch else input.expand(*batch, *input.shape[-2:])
    b = other if other.shape[:-2] == batch else other.expand(*batch, *other.shape[-2:])
    lead = string.ascii_lowercase[: len(batch)]
    return contract(a, b, lead + "xy", lead + "yz", lead + "xz")


def _matmul_operator(self: Tensor, other: Any) -> Any:
    return matmul(self, other) if isinstance(other, Tensor) else NotImplemented


Tensor.__matmul__ = _matmul_operator  # type: ignore[attr-defined]
Tensor.__rmatmul__ = lambda self, other: matmul(other, self)  # type: ignore[attr-defined]


@public()
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices."""
    if input.ndim != 2 or mat2.ndim != 2:
        which = "self" if input.ndim != 2 else "mat2"
        raise RuntimeError(f"{which} must be a matrix")
    a, b = input.shape, mat2.shape
    if a[1] != b[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})")
    _same_dtype("mm", input, mat2)
    return contract(input, mat2, "xy", "yz", "xz")


@public()
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices."""
    if input.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError(f"batch{1 if input.ndim != 3 else 2} must be a 3D tensor")
    a, b = input.shape, mat2.shape
    if a[0] != b[0] or a[2] != b[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] but got: [{b[0]}, "
            f"{b[1]}]."
        )
    _same_dtype("bmm", input, mat2)
    return contract(input, mat2, "bxy", "byz", "bxz")


@public()
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {vec.ndim}, {input.ndim}, {vec.ndim}")
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), vec "
            f"({vec.shape[0]})"
        )
    _same_dtype("mv", input, vec)
    return contract(input, vec, "xy", "y", "x")


@public(aliases=("inner",))
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Inner product of two vectors."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.shape != tensor.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input.shape[0]}] and src [{tensor.shape[0]}] to have the "
            f"same number of elements, but got {input.shape[0]} and {tensor.shape[0]} elements respectively"
        )
    if input.dtype is not tensor.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {type_name(input.dtype)} and "
            f"{type_name(tensor.dtype)}"
        )
    return contract(input, tensor, "x", "x", "")


def _inner(input: Tensor, other: Tensor) -> Tensor:
    """Sum of products over the last dimension of both."""
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    a, b = string.ascii_lowercase[: input.ndim - 1], string.ascii_uppercase[: other.ndim - 1]
    return contract(input, other, a + "z", b + "z", a + b)


PUBLIC["inner"] = Tensor.inner = _inner  # type: ignore[attr-defined]


@public(aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Outer product of two vectors."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(
            f"outer: Expected 1-D argument self, but got {input.ndim}-D"
            if input.ndim != 1
            else f"outer: Expected 1-D argument vec2, but got {vec2.ndim}-D"
        )
    return input.unsqueeze(1) * vec2.unsqueeze(0)


def _blend(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * product; beta 0 ignores input, NaN included. Integers take whole factors."""
    if not input.dtype.is_floating and not product.dtype.is_floating:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product.expand(PUBLIC["broadcast_shapes"](input.shape, product.shape))
    return (input if beta == 1 else input * beta) + product


def _check_factors(input: Tensor, beta: Any, alpha: Any) -> None:
    for name, value in (("beta", beta), ("alpha", alpha)):
        if isinstance(value, float) and not input.dtype.is_floating:
            raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")


def _fits(input: Tensor, product: Tensor) -> None:
    if PUBLIC["broadcast_shapes"](input.shape, product.shape) != product.shape:
        raise RuntimeError(
            f"The expanded size of the tensor must match the existing size: {list(input.shape)} does not expand to "
            f"{list(product.shape)}"
        )


@public(inplace=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    product = mm(mat1, mat2)
    _same_dtype("addmm", input, mat1)
    _fits(input, product)
    return _blend(input, product, beta, alpha)


@public(inplace=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat @ vec."""
    product = mv(mat, vec)
    _fits(input, product)
    return _blend(input, product, beta, alpha)


@public(inplace=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    product = outer(vec1, vec2)
    _check_factors(product, beta, alpha)
    if input.dtype is dtypes.bool_ and product.dtype is dtypes.bool_:
        return (input & (beta != 0)) | (product & (alpha != 0))
    return _blend(input, product, beta, alpha)


@public(inplace=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2."""
    product = bmm(batch1, batch2)
    _same_dtype("baddbmm", input, batch1)
    _fits(input, product)
    return _blend(input, product, beta, alpha)


@public(inplace=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * sum over the batch of batch1 @ batch2."""
    return _blend(input, bmm(batch1, batch2).sum(0), beta, alpha)


# ---- einsum -----------------------------------------------------------------------------------------------------------


@public(method=False, out=False)
def einsum(equation: str, *operands: Any) -> Tensor:
    """Einstein summation, contracted pairwise from the left."""
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], Sequence) else list(operands)
    terms, out = _parse(equation.replace(" ", ""), tensors)
    labels, current = terms[0], tensors[0]
    labels, current = _diagonals(labels, current)
    for k in range(1, len(tensors)):
        other_labels, other = _diagonals(terms[k], tensors[k])
        later = set(out).union(*terms[k + 1 :])
        labels, current = _pair(labels, current, other_labels, other, later)
    return _finish(labels, current, out)


def _parse(equation: str, tensors: list[Tensor]) -> tuple[list[str], str]:
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise RuntimeError(
            f"einsum(): {'more' if len(terms) < len(tensors) else 'fewer'} operands were provided than specified "
            "in the equation"
        )
    wide = 0
    for term, t in zip(terms, tensors, strict=True):
        named = len(term.replace("...", ""))
        if "..." in term:
            wide = max(wide, t.ndim - named)
        if ("..." not in term and named != t.ndim) or named > t.ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of "
                f"dimensions ({t.ndim}) for operand "
                f"{terms.index(term)}{' and no ellipsis was given' if '...' not in term else ''}"
            )
    spare = [c for c in string.ascii_letters if c not in equation][:wide]
    full = []
    for term, t in zip(terms, tensors, strict=True):
        n = t.ndim - len(term.replace("...", ""))
        full.append(term.replace("...", "".join(spare[wide - n :] if n else [])))
    if arrow:
        out = right.replace("...", "".join(spare))
    else:
        seen = "".join(full)
        out = "".join(spare) + "".join(sorted(c for c in set(seen) if seen.count(c) == 1 and c not in spare))
    for c in out:
        if out.count(c) > 1 or not any(c in f for f in full):
            raise RuntimeError(
                f"einsum(): output subscript {c} "
                + (
                    "appears more than once in the output"
                    if out.count(c) > 1
                    else "does not appear in the equation for any input operand"
                )
            )
    return full, out


def _diagonals(labels: str, t: Tensor) -> tuple[str, Tensor]:
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            a = labels.index(c)
            b = labels.index(c, a + 1)
            if t.shape[a] != t.shape[b]:
                raise RuntimeError(
                    f"einsum(): subscript {c} is repeated for operand but the sizes don't match, {t.shape[b]} != "
                    f"{t.shape[a]}"
                )
            t = t.diagonal(0, a, b)
            labels = labels[:a] + labels[a + 1 : b] + labels[b + 1 :] + c
    return labels, t


def _pair(la: str, a: Tensor, lb: str, b: Tensor, later: set[str]) -> tuple[str, Tensor]:
    sizes: dict[str, int] = {}
    for labels, t in ((la, a), (lb, b)):
        for c, d in zip(labels, t.shape, strict=True):
            if sizes.get(c, 1) != 1 and d not in (1, sizes[c]):
                raise RuntimeError(
                    f"einsum(): operands do not broadcast with remapped shapes [original->remapped]: subscript {c} "
                    f"has size {d} which does not broadcast with previously seen size {sizes[c]}"
                )
            sizes[c] = max(sizes.get(c, 1), d) if d else 0
    la, a = _drop(la, a, set(lb) | later)
    lb, b = _drop(lb, b, set(la) | later)
    a = a.expand([sizes[c] if c in lb else d for c, d in zip(la, a.shape, strict=True)])
    b = b.expand([sizes[c] if c in la else d for c, d in zip(lb, b.shape, strict=True)])
    out = "".join(c for c in dict.fromkeys(la + lb) if c in later)
    common = PUBLIC["promote_types"](a.dtype, b.dtype)
    return out, contract(a.to(common), b.to(common), la, lb, out)


def _drop(labels: str, t: Tensor, keep: set[str]) -> tuple[str, Tensor]:
    """Sum over letters that nobody else reads."""
    gone = [k for k, c in enumerate(labels) if c not in keep]
    return ("".join(c for c in labels if c in keep), t.sum(gone)) if gone else (labels, t)


def _finish(labels: str, t: Tensor, out: str) -> Tensor:
    labels, t = _drop(labels, t, set(out))
    order = [labels.index(c) for c in out]
    return t if order == list(range(t.ndim)) else t.permute(order)


@public(method=False, out=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Contraction over the last dims of a with the first of b, or over two lists of dims."""
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        da, db = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        da, db = ([d] if isinstance(d, int) else list(d) for d in dims)
        da, db = [axis(d, a.ndim) for d in da], [axis(d, b.ndim) for d in db]
    letters = iter(string.ascii_letters)
    la = [next(letters) for _ in range(a.ndim)]
    lb = [next(letters) for _ in range(b.ndim)]
    for i, j in zip(da, db, strict=True):
        if a.shape[i] == 1 != b.shape[j]:
            b = b.sum(j, keepdim=True)
        elif b.shape[j] == 1 != a.shape[i]:
            a = a.sum(i, keepdim=True)
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has "
                f"size {b.shape[j]} in dim {j}"
            )
        lb[j] = la[i]
    out = [c for k, c in enumerate(la) if k not in da] + [c for k, c in enumerate(lb) if k not in db]
    return contract(a, b, "".join(la), "".join(lb), "".join(out))


@public(method=False, out=False)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """Product of matrices from the left."""
    out = matrices[0]
    for m in matrices[1:]:
        out = mm(out, m)
    return out


@public()
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product."""
    n = max(input.ndim, other.ndim)
    a, b = (
        input.reshape((1,) * (n - input.ndim) + tuple(input.shape)),
        other.reshape((1,) * (n - other.ndim) + tuple(other.shape)),
    )
    left = a.reshape([x for d in a.shape for x in (d, 1)])
    right = b.reshape([x for d in b.shape for x in (1, d)])
    return (left * right).reshape([p * q for p, q in zip(a.shape, b.shape, strict=True)])


@public()
def trace(input: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    return input.diagonal().sum()


@public()
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Vector product along `dim` (of size 3)."""
    d = axis(-1 if dim is None else dim, input.ndim)
    if dim is None:
        d = next((k for k, n in enumerate(input.shape) if n == 3), d)
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {d} must have length 3. Got {input.shape[d]} and {other.shape[d]}"
        )
    a, b = (x.unbind(d) for x in PUBLIC["broadcast_tensors"](input, other))
    return PUBLIC["stack"]([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], d)
