"""Graph-level ops, one class each, by family. Start in base.py; `REGISTRY` in core.py lists them all.

Catalogue (name{attributes}(operands) -> results; `D` is an int or a symbolic dim):

sources.py      constant{value, dtype, device}() -> 0-d; dim{value: D, device}() -> 0-d i64
                iota{shape, dim, dtype, device}()
                random_bits{shape, device}(seed: 0-d i64, offset: 0-d i64) -> i32 (Philox4x32-10, counter = element)
arithmetic.py   neg abs sign square reciprocal sqrt rsqrt floor ceil round trunc / add sub mul div (true, floating)
                floor_div trunc_div remainder fmod pow
extrema.py      maximum minimum (propagate NaN) fmax fmin (ignore it) clamp_min clamp_max
transcendental.py exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
                sigmoid erf erfc erfinv lgamma digamma atan2 hypot
logic.py        eq ne lt le gt ge -> i1; logical_and/or/xor/not; bitwise_and/or/xor/not; shift_left shift_right
                isnan isinf isfinite; select(cond: i1, a, b); cast{dtype}; bitcast{dtype}; copysign nextafter
                bits_to_uniform{dtype}(i32) -> floating in [0, 1)
identity.py     stop_gradient; leaf (a differentiable leaf: cuts nothing, marks where gradients arrive); barrier
views.py        reshape{shape} permute{dims} expand{shape} slice{starts, limits, steps} flip{dims}
                window{kernel, stride, dilation} (last dims S -> S', K) as_strided{shape, strides, offset}
padding.py      pad{low, high, interior, value} (not a View: has a fill); fold{shape, stride, dilation} (transpose of
                window); slice_update{starts, limits, steps}(base, new); concat{dim}(*xs)
view_put.py     view_put{chain of views}(base, new)
fill.py         fill{shape, dtype}(value)
reductions.py   sum prod max min any all {dims} (dims removed); argmax argmin {dim} -> i64 (dim removed, first of ties,
                NaN wins)
contraction.py  contract{lhs, rhs, out: einsum letters}(a, b)
scans.py        cumsum cumprod {dim}; cummax cummin {dim} -> (values, indices); linear_scan{dim}(a, x): the recurrence
                y[k] = a[k] * y[k-1] + x[k]
indexing.py     take{dim}(x, idx: i64 of any shape I) -> x.shape[:dim] + I + x.shape[dim+1:]
                put{dim, mode}(base, idx, src) its scatter; gather{dim}(x, idx) torch.gather
                scatter{dim, mode}(base, idx, src) torch.scatter; mode is "set" | "add" | "mul" | "amax" | "amin".
                Indices are checked in the kernel.
sorting.py      sort{dim, descending, stable}(x) -> (values, indices)
control.py      call{callee: Function}(*args); grad{outputs, through}(outputs.., seeds.., wrt..) -> one cotangent a wrt
composites/     relu leaky_relu{slope} elu{alpha, scale, input_scale} gelu{approximate} silu softplus{beta, threshold}
                trigamma; softmax{dim} log_softmax{dim} logsumexp{dims} mean{dims} var{dims, correction}
                layer_norm{rank, eps, weight, bias}(x[, w][, b]) rms_norm{rank, eps, weight}(x[, w])
                linear{bias}(x, w[, b]) conv{stride, padding, dilation, groups}(x, w[, b]) conv_transpose{...}
                max_pool{kernel, stride, padding, dilation}(x) -> (values, indices) avg_pool{...}
                attention{causal, scale}(q, k, v[, mask]) dropout{p}(x, seed, offset)
                cross_entropy{ignore_index, label_smoothing}(logits, target) -> a loss each row
                sgd_update{...}(p, g[, buffer], lr) adam_update{...}(p, g, m, v[, vmax], lr, corrections)
"""

# Importing the package fills the registry.
from treadle.ir.ops import (  # noqa: F401
    arithmetic,
    composites,
    contraction,
    control,
    extrema,
    fill,
    identity,
    indexing,
    logic,
    padding,
    reductions,
    scans,
    sorting,
    sources,
    transcendental,
    view_put,
    views,
)
