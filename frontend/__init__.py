"""treadle: PyTorch's names over a compiler. `import treadle as torch`.

Ops are recorded lazily, differentiated and fused as IR, and run as machine code. Start reading in tensor.py, then
recorder/ (how ops are recorded), compiler/ (what happens to them) and ops/ (the functions). May import all rooms.
"""

from __future__ import annotations

import sys as _sys
import types as _types

from treadle.backward.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from treadle.ir import dtypes as _dtypes
from treadle.ir.dtypes import DType as dtype
from treadle.ir.dtypes import bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from treadle.ir.dtypes import promote as promote_types
from treadle.ops import (  # the functions of each theme publish themselves
    activations,
    counting,
    creation,
    decompositions,
    elementwise,
    fft,
    gathering,
    indexing,
    linalg,
    matmul,
    random,
    reductions,
    shaping,
    sorting,
    special,
    stacking,
    strides,
    views,
)  # fmt: skip
from treadle.ops.random import Generator, default_generator
from treadle.ops.registration import PUBLIC as _PUBLIC
from treadle.printing import set_printoptions
from treadle.recorder.build import RuntimeScalar as runtime_scalar
from treadle.recorder.build import default_dtype as get_default_dtype
from treadle.recorder.build import set_default_dtype
from treadle.recorder.flush import flush as _flush
from treadle.runtime import get_num_threads, memory_stats, set_num_threads
from treadle.storage import same_storage as _same_storage
from treadle.tensor import Size, Tensor, device
from treadle.tensor import force as _force

float = float32
double = float64
half = float16
short = int16
int = int32
long = int64
bool = _dtypes.bool_
strided = "strided"
contiguous_format, preserve_format, channels_last, channels_last_3d = (
    "contiguous",
    "preserve",
    "channels_last",
    "channels_last_3d",
)
inf = float_inf = __import__("math").inf
nan = __import__("math").nan
pi = __import__("math").pi
e = __import__("math").e
__version__ = "0.1.0"

_PUBLIC["promote_types"] = promote_types
_PUBLIC["bool"] = bool
for _name, _value in _PUBLIC.items():
    if _name.startswith("_"):
        continue
    if "." in _name:
        _module_name, _short = _name.split(".")
        _module = _sys.modules.setdefault(f"treadle.{_module_name}", _types.ModuleType(f"treadle.{_module_name}"))
        setattr(_module, _short, _value)
        globals()[_module_name] = _module
    else:
        globals()[_name] = _value


def flush() -> None:
    """Start the program of what was recorded so far; does not wait."""
    _flush("treadle.flush")


def sync() -> None:
    """Run what was recorded so far and wait until everything submitted has run."""
    from treadle.runtime import synchronize

    _flush("treadle.sync")
    synchronize()


def realize(*tensors: Tensor) -> None:
    """Compute these tensors now; returns when their values are there."""
    for buffer in [_force(t) for t in tensors]:
        buffer.wait()


def is_tensor(obj: object) -> bool:  # type: ignore[valid-type]
    """True for treadle tensors."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:  # type: ignore[valid-type]
    """Number of elements."""
    return input.numel()


from treadle import autograd, backends, compiler, cuda, nn, optim, testing, utils  # noqa: E402
from treadle.nn.toplevel import NAMES as _LAYERS  # noqa: E402
from treadle.serialization import load, save  # noqa: E402

globals().update(_LAYERS)


def compile(model: object = None, **kwargs: object) -> object:
    """The model itself: everything is compiled anyway. Accepts torch.compile's arguments."""
    return (lambda f: f) if model is None else model
