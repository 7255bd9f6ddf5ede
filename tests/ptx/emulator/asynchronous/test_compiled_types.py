"""What the annotations of compiled loops say is what the loops are called with; what compiles them does not look."""

import re
import sys
import types
import typing

import numpy as np

from kernbench.common.native.kinds import INT, UINT, Array, Record, numpy_type
from kernbench.common.native_loops import NativeLoop
from kernbench.ptx.emulator.lanes.arrays import Bytes, Int, Int64s, UInt64s, Words


def fits(given, said) -> bool:
    """Whether a value of a kind is of the type that an annotation says."""
    origin, parts = typing.get_origin(said), typing.get_args(said)
    if hasattr(origin, "__value__"):
        # an alias by name, which NumPy's types of arrays are from 2.5 on
        return fits(given, origin.__value__[parts])
    if origin in (types.UnionType, typing.Union):
        return any(fits(given, part) for part in parts)
    if isinstance(said, type) and issubclass(said, tuple) and said is not tuple:
        origin, parts = tuple, tuple(typing.get_type_hints(said).values())
    if origin is tuple:
        inside = given.items if isinstance(given, Record) else ()
        return len(inside) == len(parts) and all(map(fits, inside, parts))
    if origin is np.ndarray:
        (element,) = typing.get_args(parts[1])
        return isinstance(given, Array) and (element is typing.Any or issubclass(numpy_type(given.item).type, element))
    if isinstance(given, Array | Record):
        return False
    plain = {int: np.int64, bool: np.bool_}.get(said, said)
    return issubclass(numpy_type(given).type, plain)


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


def called_loops() -> list:
    """The loops of the emulator that this process has called."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kernbench.ptx.emulator.")]
    loops = {loop for module in modules for loop in vars(module).values() if isinstance(loop, NativeLoop)}
    return [loop for loop in loops if loop.signatures]


def test_compiled_loops_are_called_with_what_they_say(bench):
    bench.pipe()
    bench.pipe(("  @!%p3 bra FULL;\n", ""), checks=True)
    bench.pipe(checks=False)
    bench.store()
    called = called_loops()
    assert len(called) > 10
    assert [wrong for loop in called for wrong in wrong_arguments(loop)] == []


# a lane copies 128 bytes, and its warp waits for them
COPY = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 source)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  .reg .pred %p<3>;
  .shared .align 128 .b8 tile[2][128];
  .shared .align 8 .b64 bars[2];
  ld.param.u64 %rd1, [source];
  mov.u32 %r1, %tid.x;
  shr.u32 %r2, %r1, 5;
  and.b32 %r1, %r1, 31;
  mov.u32 %r3, bars;
  mad.lo.u32 %r3, %r2, 8, %r3;
  mov.u32 %r4, tile;
  mad.lo.u32 %r4, %r2, 128, %r4;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra WAIT;
  mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r3];
WAIT:
  bar.warp.sync -1;
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
  @!%p2 bra AGAIN;
  ld.shared.u32 %r5, [%r4];
  ret;
}
"""


def versions_of_loops():
    """For what kinds of arguments each loop has been called in this process."""
    return {loop.py_func.__name__: {repr(given) for given in loop.signatures} for loop in called_loops()}


def test_one_warp_calls_the_loops_that_more_call(bench):
    """A loop is compiled for each layout of its arrays: a column of a table with a single row is contiguous."""
    before = versions_of_loops()
    for warps in (1, 2):
        source = bench.device.array(np.arange(32, dtype=np.uint32))
        assert bench.launch(COPY, 1, 32 * warps, [source]).findings == []
    called = versions_of_loops()
    assert {"arrive", "acquire", "unordered", "note_ranges"} <= called.keys()
    # other tests of this process may have called them with other layouts
    here = {name: versions - before.get(name, set()) for name, versions in called.items()}
    kinds = {name: {re.sub("packed=(True|False)", "", given) for given in versions} for name, versions in here.items()}
    twice = [name for name, versions in here.items() if len(kinds[name]) < len(versions)]
    assert twice == []


def test_an_annotation_that_is_wrong_is_seen():
    array, number = Array(INT, 1, True), UINT
    assert [fits(array, said) for said in (Int64s, UInt64s, Words, Bytes, Int, tuple[Int64s])] == [True] + 5 * [False]
    assert [fits(number, said) for said in (np.uint64, Int, bool, UInt64s)] == [True, False, False, False]
    pair = Record((array, number))
    assert fits(pair, tuple[Int64s, np.uint64])
    assert not fits(pair, tuple[Int64s, Int])
