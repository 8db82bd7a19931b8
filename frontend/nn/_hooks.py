"""Hooks of modules: handles that remove them, their registration, and the plumbing of backward hooks."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import treadle
from treadle import Tensor

__all__ = ["HookMixin", "RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """What a `register_*_hook` returns: `remove()` takes the hook away; also a context manager."""

    def __init__(self, hooks: dict, *also: dict) -> None:
        self.id = next(_ids)
        self._hooks = weakref.ref(hooks)
        # Companion dicts hold options of the hook under the same id.
        self._also = tuple(weakref.ref(d) for d in also)

    def remove(self) -> None:
        """Take the hook away; harmless when it is gone already."""
        for ref in (self._hooks, *self._also):
            table = ref()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple:
        return self.id, self._hooks(), tuple(ref() for ref in self._also)

    def __setstate__(self, state: tuple) -> None:
        self.id, hooks, also = state
        # A handle whose module is not pickled with it points nowhere.
        self._hooks = weakref.ref(OrderedDict() if hooks is None else hooks)
        self._also = tuple(weakref.ref(OrderedDict() if d is None else d) for d in also)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(hooks: OrderedDict, hook: Any, prepend: bool = False, options: tuple[dict, ...] = ()) -> RemovableHandle:
    """Insert `hook` and flag its id in each of the `options` dicts."""
    handle = RemovableHandle(hooks, *options)
    hooks[handle.id] = hook
    for table in options:
        table[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class HookMixin:
    """Registration and running of forward and backward hooks."""

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; a value it returns replaces the arguments.

        With `with_kwargs` the call is `hook(module, args, kwargs)` and must return None or (args, kwargs).
        """
        options = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return add_hook(self._forward_pre_hooks, hook, prepend, options)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; a value it returns replaces the output.

        With `with_kwargs` the call is `hook(module, args, kwargs, output)`; with `always_call` it is made (once, with
        output None) even when forward raises.
        """
        options = ((self._forward_hooks_with_kwargs,) if with_kwargs else ()) + (
            (self._forward_hooks_always_called,) if always_call else ()
        )
        return add_hook(self._forward_hooks, hook, prepend, options)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the outputs are known; it may replace them."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known; it may replace
        `grad_input` by returning a tuple. Only positional tensor inputs have entries."""
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """The old name of `register_full_backward_hook`, with the semantics of the new one."""
        return self.register_full_backward_hook(hook)

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        """`__call__` when at least one hook is registered."""
        done: set[int] = set()
        try:
            return self._call_hooked(args, kwargs, done)
        except Exception:
            for key, hook in list(self._forward_hooks.items()):
                if key in self._forward_hooks_always_called and key not in done:
                    # The first error is the one to report, whatever a clean-up hook does.
                    try:
                        self._run_forward_hook(key, hook, args, kwargs, None)
                    except Exception:
                        pass
            raise

    def _call_hooked(self, args: tuple, kwargs: dict, done: set[int]) -> Any:
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(
                            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                            f"but got {changed}."
                        )
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        backward = None
        if self._backward_hooks or self._backward_pre_hooks:
            backward = _BackwardHooks(self)
            args = backward.wrap_inputs(args)
        output = self.forward(*args, **kwargs)
        for key, hook in list(self._forward_hooks.items()):
            done.add(key)
            changed = self._run_forward_hook(key, hook, args, kwargs, output)
            if changed is not None:
                output = changed
        return output if backward is None else backward.wrap_outputs(output)

    def _run_forward_hook(self, key: int, hook: Callable, args: tuple, kwargs: dict, output: Any) -> Any:
        if key in self._forward_hooks_with_kwargs:
            return hook(self, args, kwargs, output)
        return hook(self, args, output)


def _alias_together(tensors: list[Tensor], on_grad: Callable[[list], Any]) -> list[Tensor]:
    """Identities of `tensors` whose gradients reach `on_grad` all at once.

    A tensor hook sees one gradient. For several tensors they are packed into one flat tensor and taken apart again, so
    that one hook sees all of their gradients and can replace them; the wider dtype of the pack loses nothing.
    """
    if len(tensors) == 1:
        alias = tensors[0].view_as(tensors[0])
        alias.register_hook(lambda g: _first(on_grad([g])))
        return [alias]
    flat = treadle.cat([t.reshape(-1) for t in tensors])
    sizes = [t.numel() for t in tensors]

    def hook(grad: Tensor) -> Tensor | None:
        parts = [g.reshape(t.shape).to(t.dtype) for g, t in zip(grad.split(sizes), tensors)]
        new = on_grad(parts)
        if new is None:
            return None
        return treadle.cat([(treadle.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(new, parts)])

    flat.register_hook(hook)
    return [part.reshape(t.shape).to(t.dtype) for part, t in zip(flat.split(sizes), tensors)]


def _first(values: Any) -> Any:
    return None if values is None else values[0]


def _as_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


class _BackwardHooks:
    """One forward call of a module with backward hooks: collects grad_output, then reports grad_input."""

    def __init__(self, module: HookMixin) -> None:
        self.module = module
        self.grad_outputs: tuple | None = None
        self.input_places: list[int] = []
        self.n_inputs = 0

    def wrap_inputs(self, args: tuple) -> tuple:
        """Replace the inputs that need gradients by identities that report them."""
        self.n_inputs = len(args)
        if not treadle.is_grad_enabled():
            return args
        self.input_places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not self.input_places:
            return args
        aliases = _alias_together([args[i] for i in self.input_places], self._on_input_grads)
        changed = list(args)
        for place, alias in zip(self.input_places, aliases):
            changed[place] = alias
        return tuple(changed)

    def wrap_outputs(self, output: Any) -> Any:
        """Replace the outputs that need gradients by identities that report them."""
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        places = [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]
        if not places:
            return output

        def on_grads(grads: list) -> list | None:
            full: list = [None] * len(outputs)
            for place, grad in zip(places, grads):
                full[place] = grad
            new = self._on_output_grads(tuple(full))
            return None if new is None else [new[i] for i in places]

        for place, alias in zip(places, _alias_together([outputs[i] for i in places], on_grads)):
            outputs[place] = alias
        if isinstance(output, tuple):
            return type(output)(*outputs) if hasattr(output, "_fields") else tuple(outputs)
        return outputs if isinstance(output, list) else outputs[0]

    def _on_output_grads(self, grads: tuple) -> tuple | None:
        changed = None
        for hook in list(self.module._backward_pre_hooks.values()):
            new = hook(self.module, grads)
            if new is not None:
                grads = changed = self._checked(_as_tuple(new), len(grads), "grad_output")
        self.grad_outputs = grads
        if not self.input_places:
            # No input asks for a gradient, so nothing else would call the hooks.
            self._run((None,) * self.n_inputs)
        return changed

    def _on_input_grads(self, grads: list) -> list | None:
        full: list = [None] * self.n_inputs
        for place, grad in zip(self.input_places, grads):
            full[place] = grad
        new = self._run(tuple(full))
        return None if new is None else [new[i] for i in self.input_places]

    def _run(self, grad_input: tuple) -> tuple | None:
        changed = None
        for hook in list(self.module._backward_hooks.values()):
            new = hook(self.module, grad_input, self.grad_outputs)
            if new is not None:
                grad_input = changed = self._checked(_as_tuple(new), len(grad_input), "grad_input")
        self.grad_outputs = None
        return changed

    @staticmethod
    def _checked(new: tuple, wanted: int, name: str) -> tuple:
        if len(new) != wanted:
            raise RuntimeError(
                f"Backward hook returned an invalid number of {name}, got {len(new)}, but expected {wanted}"
            )
        return new
