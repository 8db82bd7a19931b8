"""Saving and loading the state of modules."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import treadle
from treadle import Tensor

from ._hooks import RemovableHandle, add_hook
from .parameter import Parameter

__all__ = ["StateMixin", "_IncompatibleKeys"]

_EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` returns: the keys that the module or the dict alone has."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class StateMixin:
    """`state_dict`, `load_state_dict` and their hooks."""

    _version: int = 1

    # ---- extra state, for subclasses to override

    def get_extra_state(self) -> Any:
        """Override with `set_extra_state` to put an object of your own into the state_dict."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Called by `load_state_dict` with what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has_extra_state(self, setter: bool = False) -> bool:
        name = "set_extra_state" if setter else "get_extra_state"
        return getattr(type(self), name) is not getattr(StateMixin, name)

    # ---- hooks

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects the values."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` at the end of `state_dict`; it must return None."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """As `register_state_dict_post_hook`, but what the hook returns replaces the dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before the module takes its values from the dict."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        if with_module:
            user = hook

            def hook(*args: Any) -> None:
                user(self, *args)

        return add_hook(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may edit the lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    # ---- saving

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """Put the module's own parameters and persistent buffers (not those of children) into `destination`."""
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars else value.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: dict | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict:
        """An OrderedDict of all parameters and persistent buffers by dotted name; the tensors share storage with the
        module. `keep_vars` keeps them attached to autograd."""
        # Older code gives these by position.
        if args:
            destination = args[0]
            prefix = args[1] if len(args) > 1 else prefix
            keep_vars = args[2] if len(args) > 2 else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            result = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if result is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif result is not None:
                destination = result
        return destination

    # ---- loading

    def _load_from_state_dict(
        self,
        state_dict: dict,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take the module's own values from `state_dict`; override to read an older layout."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = {
            **self._parameters,
            **{k: b for k, b in self._buffers.items() if k not in self._non_persistent_buffers_set},
        }
        for name, value in own.items():
            if value is None:
                continue
            key = prefix + name
            if key in state_dict:
                self._load_one(name, value, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        if self._has_extra_state(setter=True):
            if prefix + _EXTRA in state_dict:
                self.set_extra_state(state_dict[prefix + _EXTRA])
            elif strict:
                missing_keys.append(prefix + _EXTRA)
        elif strict and prefix + _EXTRA in state_dict:
            unexpected_keys.append(prefix + _EXTRA)
        if strict:
            self._find_unexpected(state_dict, prefix, own, unexpected_keys)

    def _load_one(self, name: str, value: Tensor, key: str, given: Any, assign: bool, errors: list[str]) -> None:
        """Copy (or assign) one entry, or say in `errors` why not."""
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected treadle.Tensor or Tensor-like object '
                f"from checkpoint but received {type(given)}"
            )
            return
        # Checkpoints of old hold scalars as tensors of one element.
        if value.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:
            given = given[0]
        if tuple(given.shape) != tuple(value.shape):
            errors.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                f"the shape in current model is {value.shape}."
            )
            return
        try:
            with treadle.no_grad():
                if not assign:
                    value.copy_(given)
                    return
                if isinstance(value, Parameter) and not isinstance(given, Parameter):
                    given = Parameter(given, requires_grad=value.requires_grad)
                setattr(self, name, given)
        except Exception as error:
            verb = "assigning" if assign else "copying"
            errors.append(
                f'While {verb} the parameter named "{key}", whose dimensions in the model are '
                f"{value.shape} and whose dimensions in the checkpoint are {given.shape}, "
                f"an exception occurred : {error.args}."
            )

    def _find_unexpected(self, state_dict: dict, prefix: str, own: dict, unexpected: list[str]) -> None:
        for key in state_dict:
            if key.startswith(prefix) and key != prefix + _EXTRA:
                parts = key[len(prefix) :].split(".", 1)
                # Keys of children are the children's to judge.
                if (parts[0] not in self._modules) if len(parts) > 1 else (parts[0] not in own):
                    unexpected.append(key)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False):
        """Copy parameters and buffers from `state_dict` (or, with `assign`, take its tensors as they are).

        Returns:
            (missing_keys, unexpected_keys) by name. With `strict` both must be empty.
        Raises:
            RuntimeError: a shape differs, or keys differ and `strict`; TypeError: not a mapping.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata
        _load(self, state_dict, "", strict, assign, (missing, unexpected, errors))
        if strict:
            if unexpected:
                errors.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". ")
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". ")
        if errors:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors))
            )
        return _IncompatibleKeys(missing, unexpected)


def _load(module: StateMixin, state: dict, prefix: str, strict: bool, assign: bool, report: tuple) -> None:
    """Load `module` and its children; `report` is (missing, unexpected, errors)."""
    missing, unexpected, errors = report
    metadata = getattr(state, "_metadata", None)
    local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    # `strict` is about the return value too: the keys are always collected, load_state_dict decides.
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            part = OrderedDict((k, v) for k, v in state.items() if k.startswith(below))
            if metadata is not None:
                part._metadata = metadata
            _load(child, part, below, strict, assign, report)
    keys = _IncompatibleKeys(missing, unexpected)
    for hook in list(module._load_state_dict_post_hooks.values()):
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                "return new values, if incompatible_keys need to be modified, it should be done "
                "inplace."
            )
