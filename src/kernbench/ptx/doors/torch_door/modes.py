"""Modes that keep tensors on the device: results of operators with inputs there, and of calls with a device "cuda".

Below autograd, `DeviceDispatch` sees every operator with its results, including those of backward passes, before
anything else does: results that belong on the device are moved there. Above autograd, `DeviceFunction` sees the calls
of the program: a device "cuda" among the arguments becomes the CPU, and the results are marked for the device.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

from kernbench.ptx.doors.torch_door.definedness.following import Following
from kernbench.ptx.doors.torch_door.fakes import is_fake
from kernbench.ptx.doors.torch_door.generators import DeviceGenerator
from kernbench.ptx.doors.torch_door.graphs import Graphs, tensors_in
from kernbench.ptx.doors.torch_door.operators.backends import ATTENTION, attended
from kernbench.ptx.doors.torch_door.operators.gpu_only import has_own, own_results
from kernbench.ptx.doors.torch_door.operators.wishes import WISH, wished
from kernbench.ptx.doors.torch_door.ordinals import first_argument, require_device
from kernbench.ptx.doors.torch_door.pinned import is_pinned, pin
from kernbench.ptx.doors.torch_door.precision import Operator, may_widen, widened
from kernbench.ptx.doors.torch_door.registrations import Registrations
from kernbench.ptx.doors.torch_door.storages import (
    Storages,
    is_plain,
    is_shortage,
    out_of_memory,
    plain_here,
    storage_address,
)

_ATEN = torch.ops.aten
_EMPTY = {
    getattr(_ATEN, name)
    for name in ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")
    if hasattr(_ATEN, name)
}
_HOST = torch.device("cpu")
_DEVICE = torch.device("cuda", 0)
_RAW_TO: Any = torch.Tensor.to
_RAW_DEEPCOPY: Any = torch.Tensor.__deepcopy__


_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction


class Sessions(threading.local):
    """The storages of the sessions whose modes are active in a thread, innermost last.

    Only the innermost session's modes act: outer ones would see a call after its "cuda" has become "cpu", and leave
    results on the host that belong on the device.
    """

    def __init__(self) -> None:
        self.storages: list[Storages] = []


_SESSIONS = Sessions()


class _SessionMode:
    """Base of both modes: which session they belong to, and whether an inner session has taken over."""

    _storages: Storages

    def __enter__(self) -> Any:
        _SESSIONS.storages.append(self._storages)
        return super().__enter__()  # type: ignore[misc]

    def __exit__(self, *problem: object) -> None:
        _SESSIONS.storages.pop()
        super().__exit__(*problem)  # type: ignore[misc]

    def _is_outer(self) -> bool:
        return _SESSIONS.storages[-1] is not self._storages


def _placeable(values: Any) -> Iterator[Any]:
    """The tensors among arguments or results of an operator, also in lists; to be called without a function mode."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if plain_here(value) or is_fake(value):
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _placeable(value)


def _tensors(values: Any) -> Iterator[Any]:
    """Those of them that have data."""
    return (value for value in _placeable(values) if not is_fake(value))


class DeviceDispatch(_SessionMode, TorchDispatchMode):  # type: ignore[misc]
    """Moves results of operators to the device."""

    def __init__(self, storages: Storages, registrations: Registrations, graphs: Graphs, following: Following):
        super().__init__()
        self._storages, self._registrations, self._graphs = storages, registrations, graphs
        self._following = following

    # higher-order operators (flex_attention) are seen as a whole; their results belong on the device
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise torch would load its compiler, which takes seconds, only to disable it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        """Run an operator; new results are moved if an input is on the device, or the call wants them there."""
        if self._is_outer():
            return func(*args, **(kwargs or {}))
        wish = WISH.device
        # calls inside torch's own functions, or in a backward pass, reach this mode unchanged
        if kwargs and is_cuda_device(kwargs.get("device")):
            kwargs, wish = {**kwargs, "device": _HOST}, True
            kwargs.pop("pin_memory", None)
        if self._graphs.loss:
            self._check_loss(args, kwargs, wish)
        own = self._registrations.of(func)
        if own is not None:
            return self._registered(own, func, args, kwargs or {}, wish)
        if self._graphs.now is not None:
            with _NO_FUNCTION_MODE():
                inside = any(self._storages.holds(tensor) for tensor in tensors_in((args, kwargs)))
            if inside and wish is False:
                self._graphs.refuse()
            if inside or wish:
                run = partial(self._run, func, wish)
                return self._graphs.operator(self._graphs.now, func, args, kwargs or {}, run)
        return self._run(func, wish, args, kwargs or {})

    def _check_loss(self, args: Sequence[object], kwargs: Mapping[str, object] | None, wish: bool | None) -> None:
        """Operators on a lost GPU fail; the host continues."""
        with _NO_FUNCTION_MODE():
            if wish or any(self._storages.holds(tensor) for tensor in tensors_in((args, kwargs))):
                self._graphs.loss.check()

    def _run(self, func: Operator, wish: bool | None, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        with _NO_FUNCTION_MODE():
            step = self._following.before(func, args, kwargs, wish is False)
        result = self._computed(func, wish, args, kwargs)
        if wish is not False or step is not None:
            with _NO_FUNCTION_MODE():
                if step is not None:
                    self._following.after(step, result)
                if wish is not False:
                    self._place(func, result, args, kwargs, wish, by_value=step is None or step.by_value)
                if step is not None:
                    self._following.keep(step)
        return result

    def _computed(
        self, func: Operator, wish: bool | None, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """The result of an operator, wherever it lies."""
        result = None
        if has_own(func, args):
            with _NO_FUNCTION_MODE():
                inside = any(map(self._storages.holds_here, _tensors(args)))
                result = own_results(func, args, kwargs) if inside else None
        elif may_widen(func):
            with _NO_FUNCTION_MODE():
                result = widened(func, args, kwargs, self._storages.holds_here)
        if result is None:
            result = self._called(func, args, kwargs, wish)
        return result

    def _called(
        self, func: Operator, args: Sequence[object], kwargs: Mapping[str, object], wish: bool | None
    ) -> object:
        """Run an operator of torch's CPU build; device storages grow by being replaced."""
        if getattr(func, "overloadpacket", None) is _ATEN.resize_:
            tensor, size = cast(torch.Tensor, args[0]), cast(Sequence[int], args[1])
            with _NO_FUNCTION_MODE():
                if self._storages.holds_here(tensor):
                    return self._storages.resize(tensor, size)
        try:
            return func(*args, **kwargs)
        except RuntimeError as problem:
            if wish and is_shortage(problem):
                raise out_of_memory(problem) from None
            if "storage that is not resizable" not in str(problem):
                raise
        with _NO_FUNCTION_MODE():
            return self._with_other_results(func, args, kwargs)

    def _with_other_results(self, func: Operator, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run an operator whose `out=` tensors are too small for its result."""
        given = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
        fresh = {name: torch.empty(0, dtype=value.dtype) for name, value in given.items()}
        result = func(*args, **{**kwargs, **fresh})
        for name, value in given.items():
            made = fresh[name]
            self._storages.move(made)
            value.set_(made.untyped_storage(), 0, made.size(), made.stride())
        return next(iter(given.values())) if isinstance(result, torch.Tensor) else tuple(given.values())

    def _registered(
        self,
        own: Callable[..., object],
        func: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        wish: bool | None,
    ) -> object:
        """Run an operator for which the program has registered a function: that function, for tensors on the device."""
        with _NO_FUNCTION_MODE():
            given = [*_tensors(args), *_tensors(kwargs.values())]
            inside = wish is not False and any(self._storages.holds(tensor) for tensor in given)
        if wish and not given and "device" in kwargs:
            inside, kwargs = True, {**kwargs, "device": _DEVICE}
        chosen = own if inside else self._registrations.for_host(func)
        if chosen is not None:
            with wished(None), self, DeviceFunction(self._storages):
                return chosen(*args, **kwargs)
        result = func(*args, **kwargs)
        if wish:
            with _NO_FUNCTION_MODE():
                self._place(func, result, args, kwargs, wish)
        return result

    def _place(self, func: Any, result: Any, args: Any, kwargs: Any, wish: bool | None, by_value: bool = True) -> None:
        storages, memory = self._storages, self._storages.memory
        given = [*_placeable(args), *_placeable(kwargs.values())] if kwargs else list(_placeable(args))
        inside = [tensor for tensor in given if storages.holds_here(tensor)]
        if not wish and not inside:
            return
        fresh = [tensor for tensor in _placeable((result,)) if not storages.holds_here(tensor)]
        if not fresh:
            return
        known = {storage_address(tensor) for tensor in given}
        empty = getattr(func, "overloadpacket", None) in _EMPTY
        poisoned = by_value and not empty and memory.watches_any(storage_address(tensor) for tensor in inside)
        for tensor in fresh:
            address = storage_address(tensor)
            # a view of a host tensor, or the tensor itself, stays there; tensors of a list may share a storage
            if (not address or address not in known) and not memory.holds(address):
                storages.move(tensor, empty=empty, poisoned=poisoned)


def registrations_for(storages: Storages) -> Registrations:
    """Functions that programs register for CUDA, and how to call them where no mode is active."""

    def inside(values: Iterable[object]) -> bool:
        with _NO_FUNCTION_MODE():
            return any(storages.holds(tensor) for tensor in _tensors(values))

    def called(function: Callable[..., object], args: Iterable[object], kwargs: Mapping[str, object]) -> object:
        with DeviceFunction(storages):
            return function(*args, **kwargs)

    return Registrations(inside, called)


def is_cuda_device(device: object) -> bool:
    """Whether a device argument (a number, a name, a torch.device) means the GPU, of which there is one."""
    if isinstance(device, bool) or device is None:
        return False
    named = isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == "cuda"
    if not named and not isinstance(device, int):
        return False
    require_device(device)
    return True


def is_device(value: Any) -> bool:
    """Whether an argument of `Tensor.to` is a device."""
    return isinstance(value, torch.device) or (isinstance(value, str) and not value.startswith("torch."))


class _Transfer(torch.autograd.Function):  # type: ignore[misc]
    """A copy between host and device; its gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: bool) -> object:
        """The copy, on the device or on the host."""
        ctx.device = device
        with wished(device):
            return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> object:
        """The gradient, copied back."""
        with wished(not ctx.device):
            return gradients[0].clone(), None


def transfer(storages: Storages, tensor: torch.Tensor, device: bool) -> object:
    """A tensor on the device or on the host: a copy, or itself if it is already there."""
    if not (is_plain(tensor) or is_fake(tensor)) or storages.holds(tensor) == device:
        return tensor
    return _Transfer.apply(tensor, device)


class DeviceFunction(_SessionMode, TorchFunctionMode):  # type: ignore[misc]
    """Handles "cuda" in calls of the program."""

    def __init__(self, storages: Storages):
        super().__init__()
        self._storages = storages

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        """A call, with its results on the requested device."""
        kwargs = dict(kwargs or {})
        if self._is_outer():
            return func(*args, **kwargs)
        if func in _MOVES:
            return _MOVES[func](self._storages, *args, **kwargs)
        if kwargs.pop("pin_memory", None) and not is_cuda_device(kwargs.get("device")):
            made = self.__torch_function__(func, types, args, kwargs)
            return pin(self._storages.memory, made) if isinstance(made, torch.Tensor) else made
        if isinstance(kwargs.get("generator"), DeviceGenerator):
            kwargs["generator"] = kwargs["generator"].of
        device = kwargs.get("device")
        if device is None:
            device = _default_device(func)
        if device is None:
            return func(*args, **kwargs)
        if is_cuda_device(device):
            kwargs["device"] = _HOST
            with wished(True):
                return self._there(func(*args, **kwargs), args)
        with wished(False if str(device) == "cpu" else None):
            return func(*args, **kwargs)

    def _there(self, result: object, args: Iterable[object]) -> object:
        """A result that no operator has moved (for example of `torch.as_tensor`), on the device."""
        if not isinstance(result, torch.Tensor) or self._storages.holds(result) or not is_plain(result):
            return result
        with _NO_FUNCTION_MODE():
            made_here = result.requires_grad and result.is_leaf and not any(result is value for value in args)
        if made_here:
            # gradients are for the tensor that the program gets, not for the original of the copy
            return cast(torch.Tensor, transfer(self._storages, result.detach(), True)).requires_grad_()
        return transfer(self._storages, result, True)


def _default_device(func: Callable[..., object]) -> torch.device | None:
    """The default device of a call without a device, from `torch.set_default_device` or `with`."""
    # torch keeps its own mode below all others; calls that are no operators (`torch.tensor`) would go from there to
    # CUDA
    if not torch._C._len_torch_function_stack():
        return None
    lowest = torch._C._get_function_stack_at(0)
    here = isinstance(lowest, DeviceContext) and func in _device_constructors()
    return cast(torch.device, lowest.device) if here else None


def moved_to(storages: Storages, tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
    """`Tensor.to`: a device, an element type, both, or those of another tensor."""
    rest: list[Any] = []
    device = kwargs.pop("device", None)
    if "other" in kwargs:
        args = (kwargs.pop("other"), *args)
    for value in args:
        if is_device(value) or (isinstance(value, int) and not isinstance(value, bool) and not rest and device is None):
            device = value
        elif isinstance(value, torch.Tensor):
            device, rest = ("cuda" if storages.holds(value) else "cpu"), [*rest, value.dtype]
        else:
            rest.append(value)
    kwargs.pop("non_blocking", None)
    if device is None:
        return _RAW_TO(tensor, *rest, **kwargs) if rest or kwargs else tensor
    if not is_cuda_device(device) and str(device) != "cpu":
        return _RAW_TO(tensor, device, *rest, **kwargs)
    if rest and isinstance(rest[-1], bool):
        # positional non_blocking and copy
        copies = len([value for value in rest if isinstance(value, bool)]) > 1 and rest[-1]
        rest = [value for value in rest if not isinstance(value, bool)]
        kwargs.setdefault("copy", copies)
    moved = transfer(storages, tensor, is_cuda_device(device))
    if moved is not tensor:
        kwargs.pop("copy", None)
    return _RAW_TO(moved, *rest, **kwargs) if rest or kwargs else moved


def _cuda(storages: Storages, tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
    require_device(first_argument(args, kwargs))
    return transfer(storages, tensor, True)


def _cpu(storages: Storages, tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
    return transfer(storages, tensor, False)


def _for_numpy(
    raw: Callable[..., object], storages: Storages, tensor: torch.Tensor, *args: object, **kwargs: object
) -> object:
    """`Tensor.numpy` and what NumPy calls; refused for a tensor on the device, as in torch."""
    if is_plain(tensor) and storages.holds(tensor):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return raw(tensor, *args, **kwargs)


def _deepcopied(storages: Storages, tensor: torch.Tensor, memo: dict[object, object]) -> torch.Tensor:
    """`copy.deepcopy` of a tensor, on the same device; copies of views that share a storage share one as well."""
    known = id(tensor) in memo
    copied = _RAW_DEEPCOPY(tensor, memo)
    if known or not is_plain(tensor) or not storages.holds(tensor) or storages.holds(copied):
        return copied
    with torch.no_grad(), _NO_FUNCTION_MODE():
        storage = memo.setdefault(("kernbench storage", storage_address(tensor)), None)
        if storage is None:
            fresh = copied.detach()
            storages.move(fresh)
            memo["kernbench storage", storage_address(tensor)] = storage = fresh.untyped_storage()
        shape = (tensor.storage_offset(), tensor.size(), tensor.stride())
        copied.data = torch.empty(0, dtype=tensor.dtype).set_(storage, *shape)
    return copied


def _beside(
    raw: Callable[..., object], storages: Storages, tensor: torch.Tensor, *args: object, **kwargs: object
) -> object:
    """`Tensor.new_tensor` and the like: a new tensor on the same device, unless the call names one."""
    device = kwargs.get("device")
    if device is not None and not is_cuda_device(device):
        return raw(tensor, *args, **kwargs)
    kwargs.pop("device", None)
    inside = device is not None or (is_plain(tensor) and storages.holds(tensor))
    made = raw(tensor, *args, **kwargs)
    if not inside or not isinstance(made, torch.Tensor) or not is_plain(made) or storages.holds(made):
        return made
    wanted = made.requires_grad
    return cast(torch.Tensor, transfer(storages, made.detach(), True)).requires_grad_(wanted)


def _where_its_inputs_are(raw: Callable[..., object], storages: Storages, *args: object, **kwargs: object) -> object:
    """A function that makes its result of a shape and a type: below, nothing says on which device."""
    given = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and is_plain(value))
    with wished(True if any(storages.holds(value) for value in given) else None):
        return raw(*args, **kwargs)


def _attended(storages: Storages, query: torch.Tensor, *args: object, **kwargs: object) -> object:
    return (attended if storages.holds(query) else ATTENTION)(query, *args, **kwargs)


_MOVES: dict[Any, Any] = {
    **{
        function: partial(_where_its_inputs_are, function)
        for function in (torch.nn.functional.one_hot, torch.linalg.matrix_rank)
    },
    torch.Tensor.new_tensor: partial(_beside, torch.Tensor.new_tensor),
    torch.Tensor.new: partial(_beside, torch.Tensor.new),
    torch.Tensor.numpy: partial(_for_numpy, torch.Tensor.numpy),
    torch.Tensor.__array__: partial(_for_numpy, torch.Tensor.__array__),
    torch.Tensor.__deepcopy__: _deepcopied,
    torch.Tensor.to: moved_to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.pin_memory: lambda storages, tensor, *args, **kwargs: pin(storages.memory, tensor),
    torch.Tensor.is_pinned: lambda storages, tensor, *args, **kwargs: is_pinned(storages.memory, tensor),
    ATTENTION: _attended,
}
