"""erf and erfc in basic operations: minimax polynomials on pieces."""

from __future__ import annotations

from treadle.ir.core import Value
from treadle.passes.expand_math_base import Math

__all__ = ["erf"]

# erf(x) / x - 1 in x**2 on 0..1.5, and erf(2.75 + 1.25 t) on -1..1.
_NEAR = (0.12837915122509003, -0.37612566351890564, 0.11283086985349655, -0.02684023231267929, 0.005176638253033161,
         -0.0008070560288615525, 9.282820974476635e-05, -5.762976343248738e-06)  # fmt: skip
_FAR = (0.9998993873596191, 0.0007327208295464516, -0.002519001718610525, 0.005394963547587395, -0.007956702262163162,
        0.008380911312997341, -0.006308994721621275, 0.0031826274935156107, -0.0005677374429069459,
        -0.000705642276443541, 0.0005690694670192897, -3.8171485357452184e-05, -6.34444659226574e-05)  # fmt: skip


def erf(m: Math, x: Value) -> Value:
    a = m.abs(x)
    near = m.fma(x, m.polynomial(m.mul(x, x), _NEAR), x)
    far = m.polynomial(m.fmac(m.at_most(a, 4.0), 0.8, -2.2), _FAR)
    return m.pick(m.above(a, 1.5), m.copysign(far, x), near)
