"""The launcher of a compiled kernel.

Turns arguments with Triton's signature into the bytes of the kernel's parameters.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.session import LoadedText, Notes, Session
from kernbench.ptx.doors.terms.sites import launch_site
from kernbench.ptx.doors.terms.words import TRITON
from kernbench.ptx.doors.triton_door.compiling import compiler_of, identity_of
from kernbench.ptx.doors.triton_door.descriptors import Value, expanded

_FLOATS: dict[str, Any] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
}
_DESCRIPTOR_BYTES = 128


def flattened(signature: Sequence[Any], values: Sequence[Any]) -> Iterator[Value]:
    """Values with their types, without constants; tuples are flattened."""
    for kind, value in zip(signature, values, strict=True):
        if isinstance(kind, tuple):
            yield from flattened(kind, value)
        elif kind != "constexpr":
            yield value, kind


def address_of(value: Any, position: int, session: Session) -> int:
    """The address of a pointer argument; a tensor that is not on the device is an error."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not hasattr(value, "data_ptr"):
        raise TypeError("Pointer argument must be either uint64 or have data_ptr method")
    address = int(value.data_ptr())
    if address and not session.memory.reaches(address):
        raise ValueError(f"Pointer argument (at {position}) cannot be accessed from Triton (cpu tensor?)")
    return address


def packed(value: Any, kind: str, size: int) -> bytes:
    """A number as the `size` bytes of a parameter."""
    if kind in _FLOATS:
        with np.errstate(over="ignore"):
            data = np.array([value], np.float64).astype(_FLOATS[kind]).tobytes()
        return data if len(data) == size else data.ljust(size, b"\0")
    if isinstance(value, bytes):
        return value
    if kind == "nvTmaDesc":
        return _descriptor_bytes(value)
    if kind.startswith("*"):
        value = 0 if value is None else value if isinstance(value, int) else value.data_ptr()
    number = int(bool(value)) if kind in ("i1", "u1") else int(value)
    return (number & ((1 << 64) - 1)).to_bytes(8, "little")[:size]


def _descriptor_bytes(value: Any) -> bytes:
    return ctypes.string_at(value.tma_desc_cpu_ptr(), _DESCRIPTOR_BYTES)


class Launcher:
    """Launches one compiled kernel; Triton creates one for each and calls it with grid, handles, hooks, arguments."""

    def __init__(self, session: Session, source: Any, metadata: Any, dry: Any):
        self._session, self._metadata, self._dry = session, metadata, dry
        self._signature = _signature_of(source)
        function = getattr(source, "fn", None)
        self._title = getattr(function, "__name__", None) or metadata.name
        self._identity = identity_of(function)
        self._constants = _constants_of(source, metadata)
        self._compiler = compiler_of(function)

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: LoadedText, packed: Any, metadata: Any, *rest: Any
    ) -> None:
        """Launch a grid of programs; no operation if it is empty, or in the autotuner's dry runs."""
        enter, leave, *arguments = rest
        if self._dry.on or prod((x, y, z)) <= 0:
            return
        self._session.loss.check()
        if enter is not None:
            enter(metadata)
        self._launch((x, y, z), stream, function, arguments)
        if leave is not None:
            leave(metadata)

    def _launch(self, grid: tuple[int, int, int], stream: Any, function: LoadedText, arguments: Sequence[Any]) -> None:
        kernel = next(iter(function.kernels.values()))
        values, names = self._values(arguments)
        values += [(self._scratch(kind, grid, stream), "*i8") for kind in ("global", "profile")]
        sizes = [parameter.size for parameter in kernel.params]
        if len(values) < len(sizes):
            raise MisuseError(f"'{self._title}' has {len(sizes)} parameters; this Triton passes {len(values)} values")
        data = [packed(value, kind, size) for (value, kind), size in zip(values, sizes, strict=False)]
        cluster = self._cluster()
        launch = self._session.launch(
            kernel,
            [size * inside for size, inside in zip(grid, cluster, strict=True)],
            kernel.reqntid or kernel.maxntid or (32 * self._metadata.num_warps, 1, 1),
            data,
            shared_bytes=self._metadata.shared,
            cluster=cluster if prod(cluster) > 1 else None,
            title=self._title,
            site=launch_site(),
            notes=Notes(names, self._constants, TRITON, self._identity, self._compiler),
        )
        self._session.loss.note(launch.title, launch.number, launch.run)

    def _values(self, arguments: Sequence[Any]) -> tuple[list[Value], dict[int, str]]:
        """The values of all parameters, with pointers as addresses, and the names of arrays by address."""
        if len(arguments) != len(self._signature):
            raise MisuseError(
                f"this Triton passes {len(arguments)} arguments for the {len(self._signature)} of '{self._title}' in "
                "its signature: kernbench does not know the release; install one that the tutorial names"
            )
        maps = list(getattr(self._metadata, "tensordesc_meta", None) or [])
        values: list[Value] = []
        names: dict[int, str] = {}
        for (name, kind), argument in zip(self._signature.items(), arguments, strict=True):
            for value, one in flattened([kind], [argument]):
                parts = [(value, one)]
                if one.startswith("tensordesc"):
                    names[address_of(value.base, len(values), self._session)] = str(name)
                    parts = expanded(value, maps.pop(0) if maps else None)
                for part, of in parts:
                    if of.startswith("*"):
                        part = address_of(part, len(values), self._session)
                        # several null pointers are indistinguishable, so they get no name
                        names[part] = "" if not part and part in names else names.get(part, str(name))
                    values.append((part, of))
        return values, names

    def _cluster(self) -> tuple[int, int, int]:
        dims = getattr(self._metadata, "cluster_dims", None)
        if dims and prod(dims) > 1:
            x, y, z = (*dims, 1, 1)[:3]
            return x, y, z
        return (getattr(self._metadata, "num_ctas", 1), 1, 1)

    def _scratch(self, kind: str, grid: tuple[int, int, int], stream: Any) -> Any:
        """Scratch memory that a kernel needs, from the program's allocator or Triton's own; None if it needs none."""
        size = getattr(self._metadata, f"{kind}_scratch_size", 0) or 0
        if not size:
            return None
        from triton.runtime import _allocation
        from triton.runtime.driver import driver

        name = "_profile_allocator" if kind == "profile" else "_allocator"
        allocator: Any = getattr(_allocation, name)
        allocator = allocator.get() if hasattr(allocator, "get") else allocator
        active: Any = driver.active
        own = getattr(active, "allocate_default_profile_scratch", None)
        if kind == "profile" and own is not None and isinstance(allocator, _allocation.NullAllocator):
            # releases that instrument kernels have their own memory for it
            allocator = own
        align = getattr(self._metadata, f"{kind}_scratch_align", 1)
        return allocator(size * prod(grid) * prod(self._cluster()), align, stream)


def _signature_of(source: Any) -> dict[Any, Any]:
    """Types of arguments by name; "constexpr" for constants that are still passed (before 3.3)."""
    names = getattr(getattr(source, "fn", None), "arg_names", ())
    constants = getattr(source, "constants", None) or {}
    plain = {key if isinstance(key, str) else names[key] for key in constants if isinstance(key, (int, str))}
    found = {}
    for key, kind in source.signature.items():
        name = names[key] if isinstance(key, int) and key < len(names) else key
        found[name] = "constexpr" if name in plain else kind
    return found


def _constants_of(source: Any, metadata: Any) -> Mapping[str, Any]:
    """The compile-time constants of a kernel, and its numbers of warps and stages, for reports."""
    names = getattr(getattr(source, "fn", None), "arg_names", ())
    found: dict[str, Any] = {}
    for key, value in (getattr(source, "constants", None) or {}).items():
        number = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        name = names[number] if isinstance(number, int) and number < len(names) else str(number)
        if isinstance(value, (bool, int, float, str)):
            found[name] = value
    for name in ("num_warps", "num_stages", "num_ctas"):
        if hasattr(metadata, name):
            found[name] = getattr(metadata, name)
    return {"constants": found}
