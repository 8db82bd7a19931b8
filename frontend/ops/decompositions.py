"""Matrix decompositions: computed by LAPACK through NumPy once the value is there, with derivatives in recorded ops.

Each is a custom Function: a cut of the trace, not a kernel. What follows from a decomposition is in `linalg.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.autograd.function import Function
from treadle.ops.elementwise import where
from treadle.ops.matmul import matmul
from treadle.ops.registration import PUBLIC
from treadle.tensor import Tensor

__all__ = ["LinAlgError", "cholesky", "determinant", "eigh", "inverse", "log_determinant", "qr", "solve", "svd"]


class LinAlgError(RuntimeError):
    """A matrix that has no such decomposition."""


PUBLIC["linalg.LinAlgError"] = LinAlgError


def check_matrix(name: str, t: Any, square: bool = False) -> None:
    """Raises RuntimeError unless `t` is a batch of floating-point (square) matrices."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name}(): argument 'A' (position 1) must be Tensor, not {type(t).__name__}")
    if t.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if square and t.shape[-1] != t.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {t.shape[-2]} by {t.shape[-1]} matrices"
        )
    if t.dtype.name not in ("float32", "float64"):
        raise RuntimeError(f"{name}: Low precision and integer dtypes not supported. Got {t.dtype!r}")


def _compute(f: Callable, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Results of a NumPy function on values."""
    try:
        found = f(*(t.detach().numpy() for t in tensors))
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg: {error}") from None
    found = found if isinstance(found, tuple) else (found,)
    return tuple(PUBLIC["tensor"](np.asarray(a, order="C"), dtype=tensors[0].dtype) for a in found)


def transposed(t: Tensor) -> Tensor:
    """Matrices with rows and columns exchanged."""
    return t.transpose(-2, -1)


def diagonals(t: Tensor) -> Tensor:
    """Diagonal matrices of the last dimension."""
    return PUBLIC["diag_embed"](t)


class _Inverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        (out,) = _compute(np.linalg.inv, a)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        t = transposed(ctx.saved_tensors[0])
        return -matmul(matmul(t, g), t)


class _Solve(Function):
    """Columns: a x = b."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        (out,) = _compute(np.linalg.solve, a, b)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, x = ctx.saved_tensors
        of_b = solve(transposed(a), g)
        return -matmul(of_b, transposed(x)), of_b


def _cofactors(a: np.ndarray) -> np.ndarray:
    """d det(a) / d a, for singular matrices too: from the singular values without each one."""
    u, s, vh = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, k, -1), -1) for k in range(n)], -1) if n else s
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return (u * (others * sign[..., None])[..., None, :]) @ vh


class _Determinant(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        out, slope = _compute(lambda x: (np.linalg.det(x), _cofactors(x)), a)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return ctx.saved_tensors[0] * g.unsqueeze(-1).unsqueeze(-1)


class _LogDeterminant(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        sign, log = _compute(lambda x: tuple(np.linalg.slogdet(x)), a)
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(sign)
        return sign, log

    @staticmethod
    def backward(ctx: Any, of_sign: Tensor, of_log: Tensor) -> Tensor:
        return transposed(inverse(ctx.saved_tensors[0])) * of_log.unsqueeze(-1).unsqueeze(-1)


def _half_lower(t: Tensor) -> Tensor:
    """The lower triangle with half the diagonal."""
    return t.tril() - diagonals(t.diagonal(0, -2, -1)) * 0.5


class _Cholesky(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        (out,) = _compute(np.linalg.cholesky, a)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (low,) = ctx.saved_tensors
        back = inverse(low)
        inner = _half_lower(matmul(transposed(low), g))
        total = matmul(matmul(transposed(back), inner), back)
        return (total + transposed(total)) * 0.5


class _Eigh(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, triangle: str) -> tuple[Tensor, Tensor]:
        w, v = _compute(lambda x: tuple(np.linalg.eigh(x, triangle)), a)
        ctx.save_for_backward(w, v)
        return w, v

    @staticmethod
    def backward(ctx: Any, of_w: Tensor, of_v: Tensor) -> tuple[Tensor, None]:
        w, v = ctx.saved_tensors
        gaps = w.unsqueeze(-2) - w.unsqueeze(-1)
        inner = diagonals(of_w) + _over_gaps(matmul(transposed(v), of_v), gaps)
        return matmul(matmul(v, inner), transposed(v)), None


def _over_gaps(t: Tensor, gaps: Tensor) -> Tensor:
    """t / gaps off the diagonal, 0 on it."""
    eye = PUBLIC["eye"](t.shape[-1], dtype=PUBLIC["bool"])
    return where(eye, 0.0, t / where(eye, 1.0, gaps))


class _Svd(Function):
    """The reduced decomposition: u, s, v^T."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = _compute(lambda x: tuple(np.linalg.svd(x, full_matrices=False)), a)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, gu: Tensor, gs: Tensor, gvh: Tensor) -> Tensor:
        """Townsend, Differentiating the Singular Value Decomposition (2016)."""
        u, s, vh = ctx.saved_tensors
        ut, v, gv = transposed(u), transposed(vh), transposed(gvh)
        squares = s * s
        gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1)
        of_u, of_v = matmul(ut, gu), matmul(vh, gv)
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        inner = _over_gaps(of_u - transposed(of_u), gaps) * row + column * _over_gaps(of_v - transposed(of_v), gaps)
        total = matmul(matmul(u, inner + diagonals(gs)), vh)
        if u.shape[-2] > s.shape[-1]:
            total = total + matmul((gu - matmul(u, of_u)) / row, vh)
        if vh.shape[-1] > s.shape[-1]:
            total = total + matmul(u, transposed(gv - matmul(v, of_v)) / column)
        return total


class _Qr(Function):
    """The reduced decomposition."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        q, r = _compute(lambda x: tuple(np.linalg.qr(x, "reduced")), a)
        ctx.save_for_backward(q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Tensor:
        """Liao et al., Differentiable Programming Tensor Networks (2019)."""
        q, r = ctx.saved_tensors
        m = q.shape[-2]
        wide = r.shape[-1] - m
        if wide <= 0:
            return _qr_square(q, r, gq, gr)
        square, rest = r.narrow(-1, 0, m), gr.narrow(-1, m, wide)
        tail = r.narrow(-1, m, wide)
        of_square = _qr_square(q, square, gq + matmul(matmul(q, tail), transposed(rest)), gr.narrow(-1, 0, m))
        return PUBLIC["cat"]([of_square, matmul(q, rest)], -1)


def _qr_square(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    m = matmul(r, transposed(gr)) - matmul(transposed(gq), q)
    both = m.tril() + transposed(m.tril(-1))
    total = gq + matmul(q, both)
    return transposed(solve(r, transposed(total)))


inverse: Callable[[Tensor], Tensor] = _Inverse.apply
determinant: Callable[[Tensor], Tensor] = _Determinant.apply
log_determinant: Callable[[Tensor], tuple[Tensor, Tensor]] = _LogDeterminant.apply
cholesky: Callable[[Tensor], Tensor] = _Cholesky.apply
eigh: Callable[[Tensor, str], tuple[Tensor, Tensor]] = _Eigh.apply
svd: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]] = _Svd.apply
qr: Callable[[Tensor], tuple[Tensor, Tensor]] = _Qr.apply


def solve(a: Tensor, b: Tensor) -> Tensor:
    """x of a x = b, for matrices of columns; batches broadcast."""
    batch = PUBLIC["broadcast_shapes"](a.shape[:-2], b.shape[:-2])
    a, b = (t if t.shape[:-2] == batch else t.expand(*batch, *t.shape[-2:]) for t in (a, b))
    return _Solve.apply(a, b)


def full_factor(name: str, a: Tensor) -> tuple[Tensor, ...]:
    """Decompositions with complete orthogonal factors ("svd" or "qr"), which have no derivative."""
    if name == "svd":
        return _compute(lambda x: tuple(np.linalg.svd(x, full_matrices=True)), a)
    return _compute(lambda x: tuple(np.linalg.qr(x, "complete")), a)
