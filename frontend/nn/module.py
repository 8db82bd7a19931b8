"""Module: the base class of everything that owns parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from treadle import Tensor

from ._conversion import ConversionMixin
from ._hooks import HookMixin
from ._state import StateMixin
from .parameter import Buffer, Parameter

__all__ = ["Module"]

Self = TypeVar("Self", bound="Module")

_DICTS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_PLAIN_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


def _type_name(value: object) -> str:
    """The name of a value's type as error messages print it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _indent(text: str, spaces: int) -> str:
    """`text` with all lines but the first moved right."""
    return text.replace("\n", "\n" + " " * spaces)


class Module(HookMixin, StateMixin, ConversionMixin):
    """Base class of layers and models. Subclasses set parameters, buffers and child modules as attributes and define
    `forward`; calling the module runs `forward` and the registered hooks."""

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
            )
        if not self.call_super_init and args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        # Straight into __dict__: __setattr__ needs these tables to decide where a value goes.
        own = self.__dict__
        own["training"] = True
        for name in _DICTS:
            own[name] = {} if name in _PLAIN_DICTS else OrderedDict()
        own["_non_persistent_buffers_set"] = set()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; every subclass overrides it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # On the path of every step: without hooks, four look-ups and the call.
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: every module is compiled. Accepts the arguments of `treadle.compile`."""

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        # Called only when the ordinary look-up fails.
        own = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            values = own.get(table)
            if values is not None and name in values:
                return values[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' (treadle.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            self._modules[name] = value
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' (treadle.nn.Module or None expected)"
                )
            self._modules[name] = None
        elif isinstance(value, Buffer) or name in own.get("_buffers", ()):
            self._set_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        """Assign to a buffer, or register a `Buffer`."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(value)}' as buffer '{name}' "
                "(treadle.nn.Buffer, treadle.Tensor or None expected)"
            )
        if name in self._buffers and not isinstance(value, Buffer):
            self._buffers[name] = value
            return
        persistent = value.persistent if isinstance(value, Buffer) else name not in self._non_persistent_buffers_set
        self._forget(name, "_buffers")
        self.register_buffer(name, value, persistent)

    def _forget(self, name: str, keep: str) -> None:
        """Remove `name` from everywhere but the table `keep`."""
        self.__dict__.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != keep:
                self.__dict__[table].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        return sorted(n for n in names if not n[:1].isdigit())

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        # A pickle made by another version may lack a table.
        for name in _DICTS:
            self.__dict__.setdefault(name, {} if name in _PLAIN_DICTS else OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    # ---- registration

    def _check_name(self, kind: str, name: Any, table: dict) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(
                f'{kind} name can\'t contain ".", got: {name}'
                if kind == "module"
                else f'{kind} name can\'t contain "."'
            )
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None reserves the name.

        Raises:
            KeyError: a bad or taken name; TypeError: not a Parameter; ValueError: a tensor that was computed.
        """
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                    "(treadle.nn.Parameter or None required)"
                )
            if not param.is_leaf:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                    f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                    "the value in the forward() method."
                )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer; one that is not `persistent` is left out of the state_dict."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (treadle Tensor or None required)"
            )
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module; None reserves the name."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    # ---- look-up by dotted path

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is this one. Raises AttributeError."""
        found = self
        for part in target.split(".") if target else ():
            if not hasattr(found, part):
                raise AttributeError(f"{found._get_name()} has no attribute `{part}`")
            found = getattr(found, part)
            if not isinstance(found, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at a dotted path; with `strict` something must be there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        parent.add_module(name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. Raises AttributeError."""
        return self._get_member(target, lambda m, n, v: isinstance(v, Parameter), "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. Raises AttributeError."""
        return self._get_member(target, lambda m, n, v: n in m._buffers, "a buffer")

    def _get_member(self, target: str, is_one: Callable, what: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        value = getattr(owner, name)
        if not is_one(owner, name, value):
            raise AttributeError(f"`{name}` is not {what}")
        return value

    # ---- iteration

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below it."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct children, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        for _, child in self.named_children():
            yield child

    def _named_members(
        self, members: Callable, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """(dotted name, member) where `members(module)` gives a module's own (name, member) pairs."""
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, owner in owners:
            for name, value in members(owner):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter), shared ones once unless `remove_duplicate` is False."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, with `recurse`, of all below it."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer), shared ones once unless `remove_duplicate` is False."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, with `recurse`, of all below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # ---- modes

    def apply(self: Self, fn: Callable[[Module], None]) -> Self:
        """Call `fn` on every module below and then on this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Freeze or unfreeze all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                if param.grad.requires_grad:
                    param.grad = param.grad.detach()
                param.grad.zero_()

    # ---- printing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What a subclass wants printed between its parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        below = [f"({name}): " + _indent(repr(child), 2) for name, child in self._modules.items()]
        if not own and not below:
            return self._get_name() + "()"
        if len(own) == 1 and not below:
            return f"{self._get_name()}({own[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"
