"""Operators that a program registers for CUDA with `torch.library`: they run for tensors on the device.

Torch selects functions by the device it knows, the host. So functions registered for the key "CUDA" are kept here, and
the dispatch mode calls them. It also calls those for all devices, which torch would call without a mode: they create
tensors of the device.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from kernbench.ptx.doors.patching import Patches

_KEY = "CUDA"
_COMPOSITE = "CompositeImplicitAutograd"
_ANYWHERE = "CompositeExplicitAutograd"
# torch's own operators have host functions, which are faster
_TORCH = ("aten", "prims")
_C: Any = torch._C
Function = Callable[..., object]


class Registrations:
    """Registered functions by operator, as long as their library lives."""

    def __init__(self, inside: Callable[[Iterable[object]], bool], called: Function) -> None:
        """`inside` says whether a tensor among some values is on the device.

        `called(function, args, kwargs)` calls a function of the program.
        """
        self._inside, self._called = inside, called
        # torch's name/overload/key -> the function
        self._functions: dict[str, Function] = {}

    def install(self, patches: Patches) -> None:
        """Intercept registrations from now on."""
        original = torch.library.Library.impl

        @functools.wraps(original)
        def impl(library: Any, name: object, function: Function, *rest: object, **options: object) -> object:
            before = set(library._op_impls)
            result = original(library, name, function, *rest, **options)
            for key in library._op_impls - before:
                namespace, _, kind = key.split("/")
                if kind == _KEY or (kind == _ANYWHERE and namespace not in _TORCH):
                    self._keep(library, key, function, bool(options.get("with_keyset")))
            return result

        patches.set(torch.library.Library, "impl", impl)
        patches.later(self._functions.clear)

    def of(self, operator: Any) -> Function | None:
        """The function currently registered for an operator."""
        if not self._functions or not hasattr(operator, "overloadpacket"):
            return None
        name = operator.name().replace("::", "/")
        known = (f"{name}/{kind}" for kind in (_KEY, _ANYWHERE))
        live = (key for key in known if key in self._functions and key in torch.library._impls)
        return next((self._functions[key] for key in live), None)

    def for_host(self, operator: object) -> Function | None:
        """The function registered for all devices, if there is none for the host."""
        assert isinstance(operator, torch._ops.OpOverload)
        key = f"{operator.name().replace('::', '/')}/{_ANYWHERE}"
        own = _C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CPU")
        return None if own or key not in torch.library._impls else self._functions.get(key)

    def _keep(self, library: Any, key: str, function: Function, with_keyset: bool) -> None:
        keys = _C.DispatchKeySet(_C.DispatchKey.CUDA)
        self._functions[key] = functools.partial(function, keys) if with_keyset else function
        namespace, name, kind = key.split("/")
        if kind == _KEY and _C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}", _COMPOSITE):
            # torch would decompose it before any mode sees it
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
            library.impl(name, self._whole(operator, self._functions[key]), "AutogradCPU", allow_override=True)

    def _whole(self, operator: Any, function: Function) -> Function:
        """A composite operator: the program's function for tensors on the device, else its decomposition."""

        def run(*args: object, **kwargs: object) -> object:
            if self._inside(args) or self._inside(kwargs.values()):
                return self._called(function, args, kwargs)
            return operator.decompose(*args, **kwargs)

        return run
