"""treadle.backends: switches that torch programs set. They choose among torch's libraries; here they have no effect."""

from __future__ import annotations

from types import SimpleNamespace

__all__ = ["cudnn", "mps"]

cudnn = SimpleNamespace(
    benchmark=False,
    deterministic=True,
    enabled=False,
    allow_tf32=False,
    is_available=lambda: False,
    version=lambda: None,
)
cuda = SimpleNamespace(
    matmul=SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=False), is_built=lambda: False
)
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
mkldnn = SimpleNamespace(is_available=lambda: False, enabled=False)
