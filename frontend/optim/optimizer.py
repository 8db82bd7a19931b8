"""The base of all optimizers: parameter groups, per-parameter state, hooks and checkpoints."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import treadle
from treadle.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]

Group = dict[str, Any]
Hooks = OrderedDict[int, Callable[..., Any]]

_every_pre_hook: Hooks = OrderedDict()
_every_post_hook: Hooks = OrderedDict()


class _Required:
    """Marks a default that every parameter group has to state itself."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _add_hook(hooks: Hooks, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _add_hook(_every_pre_hook, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _add_hook(_every_post_hook, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `step` method: pre hooks, the step, post hooks, then hand the recorded work to the executor."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._stepping:  # super().step() inside an overriding step(): one step, so its hooks run once
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            for hook in (*_every_pre_hook.values(), *self._step_pre_hooks.values()):
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"a step pre hook has to return None or (args, kwargs), got {changed!r}")
                args, kwargs = changed
            result = step(self, *args, **kwargs)
            for hook in (*self._step_post_hooks.values(), *_every_post_hook.values()):
                hook(self, args, kwargs)
        finally:
            self._stepping = False
        self._stepped = True
        treadle.flush()
        return result

    return wrapped


class Optimizer:
    """Base class of optimizers.

    `params` is an iterable of tensors, of `(name, tensor)` pairs or of dicts (parameter groups); `defaults` holds the
    options of groups that do not state their own. A subclass writes `step`; it may keep anything in `state[param]`.

    Raises TypeError if `params` is a single tensor or holds something other than leaf tensors, ValueError if empty.
    """

    # State entries that are Python numbers while training (they then cost no tensor operation a step) and 0-d float32
    # tensors in `state_dict()`, the form in which checkpoints carry them.
    _tensor_scalars: ClassVar[frozenset[str]] = frozenset()
    _stepping = False
    _stepped = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self._make_hooks()
        self.defaults = defaults
        if isinstance(params, treadle.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {_typename(params)}"
            )
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        for name in ("_step_pre", "_step_post", "_save_pre", "_save_post", "_load_pre", "_load_post"):
            setattr(self, name + "_hooks", OrderedDict())

    _step_pre_hooks: Hooks
    _step_post_hooks: Hooks
    _save_pre_hooks: Hooks
    _save_post_hooks: Hooks
    _load_pre_hooks: Hooks
    _load_post_hooks: Hooks

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._make_hooks()

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; `closure`, if given, evaluates the loss anew and is what `step` returns."""
        raise NotImplementedError(f"{type(self).__name__} does not define step()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or with `set_to_none=False` fill them with zeros in place."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    # ---------------------------------------------------------------- groups

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters with options of its own, such as the layers unfrozen last."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _list_params(param_group)
        for param in param_group["params"]:
            self._check_param(param)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        params = param_group["params"]
        if len(params) != len({id(p) for p in params}):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=3)
        taken: set[int] = set()
        for group in self.param_groups:
            taken.update(id(p) for p in group["params"])
            if ("param_names" in group) != ("param_names" in param_group):
                raise ValueError("all optimizer param groups should be with/without names")
        if any(id(p) in taken for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _check_param(self, param: Any) -> None:
        if not isinstance(param, treadle.Tensor):
            raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(param)}")
        if not (self.defaults.get("differentiable") or param.is_leaf or getattr(param, "retains_grad", False)):
            raise ValueError("can't optimize a non-leaf Tensor")

    # ---------------------------------------------------------------- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """State and options in the form `{"state": {index: ...}, "param_groups": [...]}`.

        Parameters are named by their position over all groups. Tensors are the live ones, not copies.
        """
        for hook in self._save_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        start = 0
        for group in self.param_groups:
            for position, p in enumerate(group["params"], start):
                numbers.setdefault(id(p), position)
            start += len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {}
        for key, entry in self.state.items():
            state[numbers[id(key)] if isinstance(key, treadle.Tensor) else key] = self._present(entry)
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._save_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def _present(self, entry: Any) -> Any:
        if not (self._tensor_scalars and isinstance(entry, dict)):
            return entry
        return {
            key: treadle.tensor(float(value), dtype=treadle.float32)
            if key in self._tensor_scalars and not isinstance(value, treadle.Tensor)
            else value
            for key, value in entry.items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a `state_dict()`; its tensors are copied, and cast to the type and device of their parameter.

        Raises ValueError if the numbers of groups, or of parameters in a group, differ.
        """
        saved: Any = dict(state_dict)
        for hook in self._load_pre_hooks.values():
            changed = hook(self, saved)
            if changed is not None:
                saved = changed
        groups = copy.deepcopy(saved["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
                )
        params = {
            number: p
            for mine, theirs in zip(self.param_groups, groups, strict=True)
            for number, p in zip(theirs["params"], mine["params"], strict=True)
        }
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, entry in saved["state"].items():
            if key in params:
                state[params[key]] = self._adopt(params[key], entry)
            else:
                state[key] = copy.deepcopy(entry)
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            theirs["params"] = mine["params"]
            if "param_names" in mine:
                theirs.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._load_post_hooks.values():
            hook(self)

    def _adopt(self, param: Any, value: Any, key: str | None = None) -> Any:
        """Copy a piece of loaded state for `param`, so that it shares no storage with its source."""
        if key in self._tensor_scalars:
            return float(value)
        if isinstance(value, treadle.Tensor):
            value = value.detach().clone()
            if key == "step":  # a count: it need not be representable in the parameter's type
                return value
            if param.is_floating_point():
                return value.to(dtype=param.dtype, device=param.device)
            return value.to(device=param.device)
        if isinstance(value, dict):
            return {k: self._adopt(param, v, k) for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._adopt(param, v) for v in value)
        return copy.deepcopy(value)

    # ---------------------------------------------------------------- hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return changed `(args, kwargs)`."""
        return _add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _add_hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` collects."""
        return _add_hook(self._save_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on the result of `state_dict`; it may return another."""
        return _add_hook(self._save_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another dict to load."""
        return _add_hook(self._load_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _add_hook(self._load_post_hooks, hook, prepend)


def _typename(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _list_params(group: Group) -> None:
    """Bring `group["params"]` into a list of tensors, and the names of named parameters into `param_names`."""
    params = group["params"]
    if isinstance(params, treadle.Tensor):
        params = [params]
    elif isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections: the order of a set differs between runs"
        )
    params = list(params)
    names = [p[0] for p in params if isinstance(p, tuple)]
    if names and len(names) != len(params):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    if names:
        group["param_names"] = names
        params = [p[1] for p in params]
    group["params"] = params
