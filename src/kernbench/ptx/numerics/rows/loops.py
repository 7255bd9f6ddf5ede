"""Compiled row kernels: a scalar function over bits becomes one loop over register rows.

A row is a one-dimensional array; inputs may also be NumPy scalars (immediates), which every lane reads.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from kernbench.common.kept import Numba
from kernbench.common.native.kinds import ADDRESS, BLOCK, LANE, READ, ROOM, WRITE
from kernbench.common.native_loops import row_loop
from kernbench.ptx.numerics.rows.scalar import Bits, Integer, Intrinsic, Typing, Values, instruction, type_named

Row = NDArray[np.generic]
Operation = Callable[..., object]
# address of a table, in compiled code
Address = object
# makes an instruction's operation from its modifiers
Mods = Mapping[str, str]
Factory = Callable[[Mods], Operation]


# numba is only imported when a loop must be compiled that is not cached


def _writing() -> tuple[Numba, Numba]:
    """numba's modules that generate code, and that access arrays."""
    from numba.core import cgutils
    from numba.np import arrayobj

    return cgutils, arrayobj


def _at_typing(context: object, row: Numba, lane: Numba) -> Intrinsic:
    """The value that a lane reads from a row or from a scalar.

    The code is generated directly: a function for each kind of row would go through all of numba's passes in each loop.
    """
    if not isinstance(row, type_named("Array")):
        return row(row, lane), lambda context, builder, signature, arguments: arguments[0]

    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        cgutils, arrayobj = _writing()
        array = arrayobj.make_array(row)(context, builder, arguments[0])
        where = array.data
        if row.ndim and row.layout == "C":
            where = builder.gep(where, [arguments[1]])
        elif row.ndim:
            stride = cgutils.unpack_tuple(builder, array.strides, 1)[0]
            where = cgutils.pointer_add(builder, where, builder.mul(stride, arguments[1]))
        return arrayobj.load_item(context, builder, row, where)

    return row.dtype(row, lane), generate


_reading_at: Typing = _at_typing
_at: Callable[[Row, int], np.generic] = instruction(_reading_at, LANE)


def _source(name: str, inputs: int, outputs: int) -> str:
    reads = [f"in{i}" for i in range(inputs)]
    writes = [f"out{i}" for i in range(outputs)]
    arguments = ", ".join(f"at({read}, lane)" for read in reads)
    targets = ", ".join(f"{write}[lane]" for write in writes)
    return (
        f"def {name}({', '.join(reads + writes)}):\n"
        f"    for lane in range(unsigned(0), unsigned(out0.size)):\n"
        f"        {targets} = scalar({arguments})\n"
    )


def row_kernel(name: str, scalar: Operation, inputs: int, outputs: int = 1) -> Operation:
    """`scalar`, a compiled function of `inputs` values returning `outputs`, as `kernel(*inputs, *outputs)` over rows.

    `name` must be unique, modifiers included: it is the key of the cached machine code. Outputs may be the same rows as
    inputs.
    """
    space = {"scalar": scalar, "at": _at, "unsigned": np.uint64, "__name__": __name__}
    return _made(name, _source(name, inputs, outputs), space)


# lanes per block; each step of a staged kernel runs over a block


def _room_typing(context: object) -> Intrinsic:
    """32 bits for each lane of a block, on the stack, so that the compiler knows that nothing aliases them."""

    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        room = _writing()[0].alloca_once(builder, ir.ArrayType(ir.IntType(32), BLOCK))
        return builder.bitcast(room, ir.IntType(32).as_pointer())

    return type_named("CPointer")(type_named("uint32"))(), generate


def _address_typing(context: object, table: Numba) -> Intrinsic:
    """A table's address, in a register: as a constant it would be materialised anew for each lane."""

    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        data = _writing()[1].make_array(table)(context, builder, arguments[0]).data
        return builder.asm(ir.FunctionType(data.type, [data.type]), "", "=r,0", [data], side_effect=True)

    return type_named("CPointer")(table.dtype)(table), generate


def _read_typing(context: object, room: Numba, lane: Numba) -> Intrinsic:
    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        return builder.load(builder.gep(arguments[0], [arguments[1]]))

    return room.dtype(room, type_named("uint64")), generate


def _write_typing(context: object, room: Numba, lane: Numba, value: Numba) -> Intrinsic:
    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        builder.store(arguments[2], builder.gep(arguments[0], [arguments[1]]))
        return arguments[2]

    kind = type_named("uint32")
    return kind(room, type_named("uint64"), kind), generate


# the value at an index from an address; for compiled code only
_reading: Typing = _read_typing
read: Callable[[Address, Integer], Integer] = instruction(_reading, READ)
_STAGED_SPACE = {
    "at": _at,
    "room": instruction(_room_typing, ROOM),
    "read": read,
    "address": instruction(_address_typing, ADDRESS),
    "write": instruction(_write_typing, WRITE),
    # an unsigned index needs no wraparound check
    "unsigned": np.uint64,
    "__name__": __name__,
}


def _staged_source(name: str, inputs: int, wide: bool) -> str:
    last = (
        "            write(values, lane, after({arguments}, read(values, lane)))\n"
        "        for lane in range(count):\n"
        "            out0[start + lane] = read(values, lane)\n"
    )
    if wide:
        last = "            out0[start + lane] = after({arguments}, read(values, lane))\n"
    reads = [f"in{i}" for i in range(inputs)]
    arguments = ", ".join(f"at({read}, start + lane)" for read in reads)
    return (
        f"def {name}({', '.join(reads)}, out0):\n"
        f"    values = room()\n"
        f"    rows, squares = address(table_rows), address(table_squares)\n"
        f"    size = unsigned(out0.size)\n"
        f"    for start in range(unsigned(0), size, unsigned({BLOCK})):\n"
        f"        count = min(unsigned({BLOCK}), size - start)\n"
        f"        for lane in range(count):\n"
        f"            write(values, lane, before({arguments}))\n"
        f"        for lane in range(count):\n"
        f"            write(values, lane, table(read(values, lane), rows, squares))\n"
        f"        for lane in range(count):\n"
        f"{last.format(arguments=arguments)}"
    )


class Stages(NamedTuple):
    """A function in three steps, each of which is one loop over lanes: only the second reads tables.

    `before(*inputs)` returns 32 bits, `table(bits, rows, squares)` 32 bits from these and the addresses of two tables,
    and `after(*inputs, bits)` the result, which has 64 bits if `wide`.
    """

    before: Callable[..., Bits]
    table: Callable[..., Bits]
    after: Callable[..., Bits]
    rows: NDArray[np.int64]
    squares: NDArray[np.uint16]
    wide: bool = False


def staged_kernel(name: str, stages: Stages, inputs: int) -> Operation:
    """As `row_kernel`, for a function that reads tables: the loops before and after can be vectorised."""
    space = {**_STAGED_SPACE, "before": stages.before, "table": stages.table, "after": stages.after}
    space |= {"table_rows": stages.rows, "table_squares": stages.squares}
    return _made(name, _staged_source(name, inputs, stages.wide), space)


def _made(name: str, text: str, space: dict[str, object]) -> Operation:
    """The compiled loop of a source text; `space` is its namespace."""
    made: dict[str, Operation] = {}
    # with this file's name numba finds a folder for its cache
    exec(compile(text, __file__, "exec"), space, made)
    return row_loop(made[name], text)
