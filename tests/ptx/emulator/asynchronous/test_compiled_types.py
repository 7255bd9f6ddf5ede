"""What the annotations of compiled loops say is what the loops are called with; numba itself does not look at them."""

import sys
import types
import typing

import numpy as np
from numba import types as numba_types
from numba.np.numpy_support import as_dtype

from kernbench.common.compiled import COMPILED
from kernbench.ptx.emulator.lanes.arrays import Bytes, Int, Int64s, UInt64s, Words


def fits(given, said) -> bool:
    """Whether a value of a numba type is of the type that an annotation says."""
    origin, parts = typing.get_origin(said), typing.get_args(said)
    if hasattr(origin, "__value__"):
        # an alias by name, which NumPy's types of arrays are from 2.5 on
        return fits(given, origin.__value__[parts])
    if origin in (types.UnionType, typing.Union):
        return any(fits(given, part) for part in parts)
    if isinstance(said, type) and issubclass(said, tuple) and said is not tuple:
        origin, parts = tuple, tuple(typing.get_type_hints(said).values())
    if origin is tuple:
        inside = tuple(given) if isinstance(given, numba_types.BaseTuple) else ()
        return len(inside) == len(parts) and all(map(fits, inside, parts))
    if origin is np.ndarray:
        (element,) = typing.get_args(parts[1])
        return isinstance(given, numba_types.Array) and (
            element is typing.Any or issubclass(as_dtype(given.dtype).type, element)
        )
    if isinstance(given, numba_types.Array | numba_types.BaseTuple):
        return False
    plain = {int: np.int64, bool: np.bool_}.get(said, said)
    return issubclass(as_dtype(given).type, plain)


def wrong_arguments(loop) -> list[str]:
    """The arguments with which a loop was called against what its annotations say."""
    function = loop.py_func
    said, names = typing.get_type_hints(function), function.__code__.co_varnames
    return [
        f"{function.__module__}.{function.__name__}({name}: {given})"
        for signature in loop.signatures
        for name, given in zip(names, signature, strict=False)
        if not fits(given, said[name])
    ]


def test_compiled_loops_are_called_with_what_they_say(bench):
    bench.pipe()
    bench.pipe(("  @!%p3 bra FULL;\n", ""), checks=True)
    bench.pipe(checks=False)
    bench.store()
    modules = [module for name, module in sys.modules.items() if name.startswith("kernbench.ptx.emulator.")]
    loops = {loop for module in modules for loop in vars(module).values() if isinstance(loop, COMPILED)}
    called = [loop for loop in loops if loop.signatures]
    assert len(called) > 10
    assert [wrong for loop in called for wrong in wrong_arguments(loop)] == []


def test_an_annotation_that_is_wrong_is_seen():
    array, number = numba_types.Array(numba_types.int64, 1, "C"), numba_types.uint64
    assert [fits(array, said) for said in (Int64s, UInt64s, Words, Bytes, Int, tuple[Int64s])] == [True] + 5 * [False]
    assert [fits(number, said) for said in (np.uint64, Int, bool, UInt64s)] == [True, False, False, False]
    pair = numba_types.Tuple((array, number))
    assert fits(pair, tuple[Int64s, np.uint64])
    assert not fits(pair, tuple[Int64s, Int])
