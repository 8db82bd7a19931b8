"""treadle.linalg: norms, products and what follows from decompositions. Names and rules are torch.linalg's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.ir import dtypes
from treadle.ir.dtypes import DType
from treadle.ops import decompositions as dec
from treadle.ops import reductions
from treadle.ops.arguments import axis
from treadle.ops.decompositions import check_matrix, transposed
from treadle.ops.elementwise import cast, need_tensor, where
from treadle.ops.matmul import cross, dot, matmul
from treadle.ops.registration import PUBLIC, public, with_out
from treadle.results import named_result
from treadle.tensor import Tensor

__all__ = ["matrix_norm", "norm", "vector_norm"]


def linalg(*aliases: str) -> Callable[[Callable], Callable]:
    """Decorator: publish `linalg.<name>` and top-level `aliases`, which are methods too."""

    def publish(f: Callable) -> Callable:
        name = f.__name__.rstrip("_")
        wrapped = with_out(f)
        PUBLIC[f"linalg.{name}"] = wrapped
        for alias in aliases:
            PUBLIC[alias] = wrapped
            setattr(Tensor, alias, f)
        return f

    return publish


# ---- norms ------------------------------------------------------------------------------------------------------------


def _floating(name: str, x: Tensor, dtype: DType | None) -> Tensor:
    need_tensor(name, x)
    if not x.dtype.is_floating:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype!r}")
    return x if dtype is None else cast(x, dtype)


@linalg()
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """(sum |x|^ord)^(1/ord) over `dim`, of the flattened tensor by default."""
    t = _floating("linalg.vector_norm", x, dtype)
    p = float(ord)
    if math.prod(t.shape) == 0 and (p < 0 or p == math.inf):
        lines = t.shape if dim is None else [t.shape[d] for d in ([dim] if isinstance(dim, int) else dim)]
        if 0 in lines:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {ord} norm on an empty dimension: it has no identity"
            )
    return reductions.vector_norm(t, p, dim, keepdim)


@linalg()
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Frobenius ("fro"), nuclear ("nuc"), spectral (2, -2) norm, or the largest or smallest column or row sum."""
    t = _floating("linalg.matrix_norm", A, dtype)
    if t.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if len(dim) != 2:
        raise RuntimeError("linalg.matrix_norm: dim must be a 2-tuple of ints")
    rows, columns = (axis(d, t.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError("linalg.matrix_norm: dims must be different")
    if ord == "fro":
        return reductions.vector_norm(t, 2.0, (rows, columns), keepdim)
    if ord in (1, -1, math.inf, -math.inf):
        across, along = (rows, columns) if ord in (1, -1) else (columns, rows)
        out = _extreme(t.abs().sum(across, keepdim=True), along, ord > 0)
        return out if keepdim else out.squeeze((rows, columns))
    if ord not in ("nuc", 2, -2):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    s = svdvals(t.movedim((rows, columns), (-2, -1)))
    out = s.sum(-1) if ord == "nuc" else _extreme(s, -1, ord == 2).squeeze(-1)
    if keepdim:
        low, high = sorted((rows, columns))
        out = out.unsqueeze(low).unsqueeze(high)
    return out


def _extreme(t: Tensor, dim: int, largest: bool) -> Tensor:
    """Largest or smallest of numbers that are not negative; the largest of none is 0."""
    if largest and t.shape[dim] == 0:
        return t.sum(dim, keepdim=True)
    return (t.amax if largest else t.amin)(dim, keepdim=True)


@linalg()
def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """A matrix norm where `ord` is a name or two dims are meant, else a vector norm."""
    dims = (dim,) if isinstance(dim, int) else dim
    if ord is None:
        out = vector_norm(A, 2, dims, keepdim, dtype=dtype)
        return out
    if dims is None:
        if A.ndim not in (1, 2):
            raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D.")
        dims = tuple(range(A.ndim))
    if len(dims) == 2 or isinstance(ord, str):
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)


@linalg()
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in norm `p` (2 by default)."""
    check_matrix("linalg.cond", A)
    if p in (None, 2, -2):
        s = svdvals(A)
        low, high = s.amin(-1), s.amax(-1)
        return low / high if p == -2 else high / low
    return matrix_norm(A, p) * matrix_norm(dec.inverse(A), p)


# ---- products ---------------------------------------------------------------------------------------------------------


@linalg()
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along `dim`."""
    return (x * y).sum(dim)


@public()
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """Inner product of two vectors."""
    return dot(input, other)


@linalg()
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Product of matrices, in the cheapest order; the first and last may be vectors."""
    parts = list(tensors)
    if len(parts) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(parts)}")
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    parts[0] = parts[0].unsqueeze(0) if first else parts[0]
    parts[-1] = parts[-1].unsqueeze(1) if last else parts[-1]
    for k, t in enumerate(parts):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {k} must be 2D but got {t.ndim}D")
        if k and t.shape[0] != parts[k - 1].shape[1]:
            raise RuntimeError(
                f"multi_dot(): tensors {k - 1} and {k} with shapes {list(parts[k - 1].shape)} and {list(t.shape)} "
                "cannot "
                "be multiplied"
            )
    out = _chain(parts, [parts[0].shape[0], *(t.shape[1] for t in parts)])
    out = out.squeeze(0) if first else out
    return out.squeeze(-1) if last else out


def _chain(parts: list[Tensor], sizes: list[int]) -> Tensor:
    """Split where the products cost least (dynamic programming over intervals)."""
    n = len(parts)
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            choices = [cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i][j] = min(choices)
            cut[i][j] = i + choices.index(cost[i][j])

    def product(i: int, j: int) -> Tensor:
        return parts[i] if i == j else matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    return product(0, n - 1)


@linalg("matrix_power")
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied by itself n times (its inverse for negative n)."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.matrix_power: A must be batches of square matrices, but they are {list(A.shape)}")
    if n < 0:
        A, n = dec.inverse(A), -n
    out: Tensor | None = None
    while n:
        if n & 1:
            out = A if out is None else matmul(out, A)
        A = matmul(A, A) if n > 1 else A
        n >>= 1
    if out is None:
        return where(PUBLIC["ones"](A.shape, dtype=dtypes.bool_), PUBLIC["eye"](A.shape[-1], dtype=A.dtype), A)
    return out


PUBLIC["linalg.matmul"], PUBLIC["linalg.cross"] = matmul, lambda input, other, *, dim=-1: cross(input, other, dim)
PUBLIC["linalg.diagonal"] = lambda A, *, offset=0, dim1=-2, dim2=-1: A.diagonal(offset, dim1, dim2)


@public(method=False, out=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """p-norm distances between all rows of two batches; the slope at distance 0 is 0."""
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError("cdist only supports at least 2D tensors")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    gaps = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if not x1.shape[-1]:
        return gaps.sum(-1)
    return reductions.vector_norm(gaps, float(p), -1, False)


# ---- from decompositions ----------------------------------------------------------------------------------------------


@linalg("inverse")
def inv(A: Tensor) -> Tensor:
    """The inverse matrices. Raises LinAlgError where one is singular. Waits for the value."""
    check_matrix("linalg.inv", A, True)
    return dec.inverse(A)


_InvEx = named_result("linalg_inv_ex", "inverse", "info")
_CholeskyEx = named_result("linalg_cholesky_ex", "L", "info")


@linalg()
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info 0). Raises LinAlgError where a matrix is singular."""
    return _InvEx(inv(A), A.new_zeros(A.shape[:-2], dtype=dtypes.int32))


@linalg()
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B); B is a vector where its shape is that of A without the last dim."""
    check_matrix("linalg.solve", A, True)
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)
    if not left:
        if vector:
            raise RuntimeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False."
            )
        return transposed(solve(transposed(A), transposed(B)))
    b = B.unsqueeze(-1) if vector else B
    if A.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({list(A.shape)} and "
            f"{list(B.shape)})"
        )
    out = dec.solve(A, b)
    return out.squeeze(-1) if vector else out


@linalg()
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B (or X A = B), reading one triangle of A."""
    check_matrix("linalg.solve_triangular", A, True)
    t = A.triu() if upper else A.tril()
    if unitriangular:
        eye = PUBLIC["eye"](A.shape[-1], dtype=PUBLIC["bool"])
        t = where(eye, 1.0, t)
    return dec.solve(t, B) if left else transposed(dec.solve(transposed(t), transposed(B)))


@linalg("det")
def det(A: Tensor) -> Tensor:
    """Determinants. Waits for the value."""
    check_matrix("linalg.det", A, True)
    return dec.determinant(A)


_Slogdet = named_result("linalg_slogdet", "sign", "logabsdet")


@linalg("slogdet")
def slogdet(A: Tensor) -> Any:
    """(sign, log of the absolute value) of determinants. Waits for the value."""
    check_matrix("linalg.slogdet", A, True)
    return _Slogdet(*dec.log_determinant(A))


@public(out=False)
def logdet(input: Tensor) -> Tensor:
    """Logarithm of determinants; NaN where one is negative."""
    sign, log = slogdet(input)
    return where(sign < 0, float("nan"), log)


@linalg()
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower factor L of A = L L^T (or its transpose). Waits for the value."""
    check_matrix("linalg.cholesky", A, True)
    low = dec.cholesky(transposed(A) if upper else A)
    return transposed(low) if upper else low


PUBLIC["cholesky"] = Tensor.cholesky = lambda input, upper=False: cholesky(input, upper=upper)  # type: ignore[attr-defined]


@linalg()
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """(L, info 0). Raises LinAlgError where a matrix is not positive-definite."""
    return _CholeskyEx(cholesky(A, upper=upper), A.new_zeros(A.shape[:-2], dtype=dtypes.int32))


@public()
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A X = input, from the Cholesky factor of A."""
    low = transposed(input2) if upper else input2
    return solve_triangular(transposed(low), solve_triangular(low, input, upper=False), upper=True)


@public()
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, from its Cholesky factor."""
    low = input.triu().mT if upper else input.tril()
    return dec.inverse(matmul(low, transposed(low)))


_Qr = named_result("linalg_qr", "Q", "R")


@linalg("qr")
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """(Q, R): orthonormal columns and an upper triangle; "complete" has square Q, "r" only R. Waits for the value."""
    check_matrix("linalg.qr", A)
    if mode in (True, False):  # torch.qr's `some`
        mode = "reduced" if mode else "complete"
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "complete" and A.shape[-2] > A.shape[-1]:
        return _Qr(*dec.full_factor("qr", A))
    q, r = dec.qr(A)
    return _Qr(A.new_empty(0), r) if mode == "r" else _Qr(q, r)


_Svd = named_result("linalg_svd", "U", "S", "Vh")


@linalg()
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh) with A = U diag(S) Vh. Waits for the value."""
    check_matrix("linalg.svd", A)
    if not full_matrices or A.shape[-2] == A.shape[-1]:
        return _Svd(*dec.svd(A))
    u, s, vh = dec.svd(A)
    full = dec.full_factor("svd", A)
    n = s.shape[-1]
    u = PUBLIC["cat"]([u, full[0].narrow(-1, n, full[0].shape[-1] - n)], -1)
    vh = PUBLIC["cat"]([vh, full[2].narrow(-2, n, full[2].shape[-2] - n)], -2)
    return _Svd(u, s, vh)


_OldSvd = named_result("svd", "U", "S", "V")


@public()
def svd_(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, V) with input = U diag(S) V^T: torch.svd."""
    u, s, vh = svd(input, not some)
    return _OldSvd(u, s, transposed(vh))


@linalg()
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, largest first. Waits for the value."""
    check_matrix("linalg.svdvals", A)
    return dec.svd(A)[1]


_Eigh = named_result("linalg_eigh", "eigenvalues", "eigenvectors")


@linalg()
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues, eigenvectors) of symmetric matrices, smallest first. Waits for the value."""
    check_matrix("linalg.eigh", A, True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _Eigh(*dec.eigh(A, UPLO.upper()))


@linalg()
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices, smallest first. Waits for the value."""
    return eigh(A, UPLO)[0]


def _cutoff(s: Tensor, A: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Singular values at or below this count as 0."""
    if rtol is None:
        machine = 2.0**-52 if A.dtype is dtypes.float64 else 2.0**-23
        rtol = machine * max(A.shape[-2:]) if atol is None else 0.0
    top = s.amax(-1, keepdim=True) if s.shape[-1] else s
    relative = top * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) and rtol.ndim else rtol)
    if atol is None:
        return relative
    absolute = atol.unsqueeze(-1) if isinstance(atol, Tensor) and atol.ndim else atol
    return PUBLIC["clamp"](relative, min=absolute)


@linalg("pinverse")
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudo-inverse; singular values below the tolerance count as 0. Waits for the value."""
    check_matrix("linalg.pinv", A, hermitian)
    plain = A.detach()
    if hermitian:  # one triangle counts
        plain = plain.tril() + transposed(plain.tril(-1))
    if not math.prod(A.shape):
        return transposed(A).clone()
    u, s, vh = dec.svd(plain)
    keep = s > _cutoff(s, A, atol, rcond if rcond is not None else rtol)
    inverse_s = where(keep, 1.0 / where(keep, s, 1.0), 0.0)
    p = matmul(transposed(vh) * inverse_s.unsqueeze(-2), transposed(u))
    return p if not A.requires_grad else _with_slope(A - A.detach(), plain, p)


def _with_slope(step: Tensor, a: Tensor, p: Tensor) -> Tensor:
    """The pseudo-inverse p of a with its derivative in a step that is 0 (Golub and Pereyra 1973); the rank stays."""
    t, pt = transposed(step), transposed(p)
    left = PUBLIC["eye"](a.shape[-1], dtype=a.dtype) - matmul(p, a)
    right = PUBLIC["eye"](a.shape[-2], dtype=a.dtype) - matmul(a, p)
    change = matmul(matmul(matmul(p, pt), t), right) + matmul(matmul(left, t), matmul(pt, p))
    return p - matmul(matmul(p, step), p) + change


@linalg()
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """Number of singular values above the tolerance. Waits for the value."""
    check_matrix("linalg.matrix_rank", A)
    s = svdvals(A.detach())
    return (s > _cutoff(s, A, tol if tol is not None else atol, rtol)).sum(-1)


_Lstsq = named_result("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


@linalg()
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular_values) of the least-squares problem A X = B."""
    check_matrix("linalg.lstsq", A)
    vector = A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape
    b = B.unsqueeze(-1) if vector else B
    x = matmul(pinv(A, rtol=rcond), b)
    m, n = A.shape[-2:]
    gap = matmul(A, x) - b
    residuals = (gap * gap).sum(-2) if m > n else A.new_empty(0)
    out = x.squeeze(-1) if vector else x
    return _Lstsq(out, residuals, matrix_rank(A, rtol=rcond), A.new_empty(0))
