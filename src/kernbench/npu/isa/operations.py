"""The table of tile operations: one row each, with its pipe, its operand form, its function and its cost.

`form` says how the operands fit together (see FORMS); `cost` the unit of its time: bytes at the vector unit's
simple or special rate, MACs, or bytes over a path.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.isa import numerics as n
from kernbench.npu.isa.units import MTE2, M, S, V

Function = Callable[..., None]
SIMPLE, SPECIAL, MACS, MOVE, NO_COST = "simple", "special", "macs", "move", "none"


@dataclass(frozen=True)
class Operation:
    """One operation. `pipe` is empty if it depends on the memories of the operands."""

    name: str
    code: int
    pipe: str
    form: str
    cost: str
    run: Function | None
    meaning: str


_ROWS: list[tuple[str, str, str, str, Function | None, str]] = []


def _add(pipe: str, form: str, rows: list[tuple[str, str, Function | None, str]]) -> None:
    _ROWS.extend((name, pipe, form, cost, run, meaning) for name, cost, run, meaning in rows)


_PAIRS: list[tuple[str, str, Callable[..., Array], str]] = [
    ("add", SIMPLE, np.add, "a + b"),
    ("sub", SIMPLE, np.subtract, "a - b"),
    ("mul", SIMPLE, np.multiply, "a * b"),
    ("div", SPECIAL, np.divide, "a / b"),
    ("max", SIMPLE, np.maximum, "the larger"),
    ("min", SIMPLE, np.minimum, "the smaller"),
]
_add(V, "same2", [(f"t{name}", cost, n.ufunc(f), summary) for name, cost, f, summary in _PAIRS])
_add(
    V,
    "integers2",
    [
        ("tand", SIMPLE, n.ufunc(np.bitwise_and), "a & b, integers"),
        ("tor", SIMPLE, n.ufunc(np.bitwise_or), "a | b, integers"),
        ("txor", SIMPLE, n.ufunc(np.bitwise_xor), "a ^ b, integers"),
        ("tshl", SIMPLE, n.ufunc(np.left_shift), "a << b, integers"),
        ("tshr", SIMPLE, n.ufunc(np.right_shift), "a >> b, integers"),
    ],
)
_add(V, "same2", [("trem", SPECIAL, n.ufunc(np.fmod), "the remainder of a / b, with the sign of a")])
_add(V, "scalar", [(f"t{name}s", cost, n.scalar(f), f"{summary}, b a number") for name, cost, f, summary in _PAIRS])
_add(V, "scalar", [("tsubrs", SIMPLE, n.scalar(np.subtract, True), "number - a")])
_add(V, "update", [("taxpy", SIMPLE, n.axpy, "dst + a * number")])
_add(
    V,
    "same1",
    [
        ("texp", SPECIAL, n.ufunc(np.exp), "e to the a"),
        ("tlog", SPECIAL, n.ufunc(np.log), "natural logarithm"),
        ("tsqrt", SPECIAL, n.ufunc(np.sqrt), "square root"),
        ("trsqrt", SPECIAL, n.ufunc(n.rsqrt), "1 / square root"),
        ("trecip", SPECIAL, n.ufunc(n.reciprocal), "1 / a"),
        ("tabs", SIMPLE, n.ufunc(np.abs), "magnitude"),
        ("tneg", SIMPLE, n.ufunc(np.negative), "-a"),
        ("trelu", SIMPLE, n.ufunc(n.relu), "max(a, 0)"),
    ],
)
_add(V, "integers1", [("tnot", SIMPLE, n.ufunc(np.invert), "~a, integers")])
_add(
    V,
    "row_reduce",
    [(f"trow{k}", SIMPLE, n.reduction(f, 1), f"{k} of each row") for k, f in
     (("sum", np.add), ("max", np.maximum), ("min", np.minimum), ("prod", np.multiply))],
)  # fmt: skip
_add(
    V,
    "col_reduce",
    [(f"tcol{k}", SIMPLE, n.reduction(f, 0), f"{k} of each column") for k, f in
     (("sum", np.add), ("max", np.maximum), ("min", np.minimum), ("prod", np.multiply))],
)  # fmt: skip
_add(V, "row_expand", [("trowexpand", SIMPLE, n.broadcast, "a column vector in every column")])
_add(V, "col_expand", [("tcolexpand", SIMPLE, n.broadcast, "a row vector in every row")])
_add(V, "row_pair", [(f"trowexpand{k}", c, n.ufunc(f), f"{t}, b a column vector") for k, c, f, t in _PAIRS])
_add(V, "col_pair", [(f"tcolexpand{k}", c, n.ufunc(f), f"{t}, b a row vector") for k, c, f, t in _PAIRS])
_add(V, "convert", [("tcvt", SIMPLE, n.convert, "a in the type of dst; mode rint, round, floor, ceil, trunc or odd")])
_add(V, "compare", [("tcmp", SIMPLE, n.compare, "1 where the comparison (eq, ne, lt, le, gt, ge) holds, else 0")])
_add(V, "compare_scalar", [("tcmps", SIMPLE, n.compare, "the same against a number")])
_add(V, "select", [("tsel", SIMPLE, n.select, "a where the mask is not 0, else b")])
_add(V, "fill", [("texpands", SIMPLE, n.fill, "a number everywhere"), ("tci", SIMPLE, n.iota, "first, first + 1, ...")])
_add(V, "transpose", [("ttrans", SIMPLE, n.transpose, "rows and columns exchanged")])
_add(V, "gather", [("tgather", SIMPLE, n.gather, "elements of each row of a, by index")])
_add(V, "sort", [("tsort", SPECIAL, n.sort, "rows in descending order; indices: where each element was")])
_add(V, "concat", [("tconcat", SIMPLE, None, "rows of a, then rows of b; index tiles count their elements")])
_add(V, "sort32", [("tsort32", SPECIAL, None, "each 32 of a row in descending order, as pairs of value and index")])
_add(
    V,
    "merge",
    [("tmrgsort", SPECIAL, None, "sorted lists of pairs as one: blocks of a tile, or tiles")],
)
_add(V, "pad", [("tfillpad", SIMPLE, None, "a copy of the valid part, a number in the rest of dst")])
_add(
    M,
    "matmul",
    [
        ("tmatmul", MACS, n.matmul, "a @ b, summed in f32"),
        ("tmatmul_acc", MACS, n.matmul_acc, "dst + a @ b"),
        ("tmatmul_bias", MACS, n.matmul_bias, "a @ b + bias, a row vector"),
    ],
)
_add(
    M,
    "matmul_mx",
    [
        ("tmatmul_mx", MACS, None, "a @ b, each 32 along k scaled by a power of two for each row of a and column of b"),
        ("tmatmul_mx_acc", MACS, None, "dst + the same"),
        ("tmatmul_mx_bias", MACS, None, "the same + bias, a row vector"),
    ],
)
_add("", "move", [("tmov", MOVE, n.move, "a copy: L1 to L0A or L0B, L0C to L1, or within UB")])
_add("", "extract", [("textract", MOVE, n.move, "a copy of the part of a that begins at (row, column)")])
_add("", "send", [("tsend", MOVE, None, "a part of a into a tile of another core: L0C to AIV0.UB, UB to AIC.L1; a5")])
_add(MTE2, "load", [("tload", MOVE, None, "device memory to UB or L1; pad= fills the rest of the tile")])
_add(
    "",
    "store",
    [
        ("tstore", MOVE, None, "UB, L1 or L0C to device memory"),
        ("tstore_add", MOVE, None, "the same, added to what is there, whoever else adds"),
    ],
)
_add(
    V,
    "scatter",
    [("mscatter", MOVE, None, "elements or rows of a tile in UB to device memory by index; a5")],
)
_add("", "put", [("tput", MOVE, None, "device memory to device memory through a tile in UB, on MTE2 and MTE3")])
_add("", "push", [("tpush", MOVE, None, "a tile into a FIFO between the cores of a cluster")])
_add(MTE2, "pop", [("tpop", MOVE, None, "a tile out of a FIFO")])
_add(S, "read", [("read", NO_COST, None, "one element of a tensor, to the program")])
_add(S, "write", [("write", NO_COST, None, "one element of a tensor, in the core's cache only, until dcci")])
_add(S, "clean", [("dcci", MOVE, None, "lines of the core's cache back to device memory where changed, and out")])
_add(S, "get", [("get", NO_COST, None, "one element of a tile, to the program")])
_add(S, "element", [("set_value", NO_COST, None, "one element of a tile becomes a number")])
_add(
    "",
    "post",
    [
        (
            "ffts_cross_core_sync",
            NO_COST,
            None,
            "when the pipe is done so far, count a flag of other cores up",
        ),
        ("set_intra_block", NO_COST, None, "the same for one other core of the cluster"),
    ],
)
_add(S, "post", [("tnotify", NO_COST, None, "set a signal in device memory, or add to it")])
_add(S, "await", [("wait_flag_dev", NO_COST, None, "the core waits for a flag that other cores count up")])
_add("", "await", [("wait_intra_block", NO_COST, None, "the pipe waits for a flag that another core counts up")])
_add(S, "await", [("twait", NO_COST, None, "the core waits until signals in device memory compare")])
_add(
    S,
    "await",
    [("poll", NO_COST, None, "a signal in device memory, to the program; asked again, it waits for a change")],
)
_add("", "set", [("set_flag", NO_COST, None, "what the source pipe was given so far is done: signal the target pipe")])
_add("", "wait", [("wait_flag", NO_COST, None, "the target pipe waits for the flag")])
_add("", "barrier", [("pipe_barrier", NO_COST, None, "the pipe (or ALL) waits for what it was given so far")])

OPERATIONS: dict[str, Operation] = {
    name: Operation(name, code, pipe, form, cost, run, meaning)
    for code, (name, pipe, form, cost, run, meaning) in enumerate(_ROWS)
}
NAMES = list(OPERATIONS)
TABLE = list(OPERATIONS.values())


# operation classes of the checker and the timing pass
PLAIN, LOAD, STORE, PUSH, POP, SET, WAIT, BARRIER, SCALAR, POST, AWAIT = range(11)
CLASS_OF_FORM = {
    "clean": STORE,
    "post": POST,
    "await": AWAIT,
    "load": LOAD,
    "store": STORE,
    "scatter": STORE,
    "push": PUSH,
    "pop": POP,
    "set": SET,
    "wait": WAIT,
    "barrier": BARRIER,
    "read": SCALAR,
    "get": SCALAR,
}
CLASSES = np.array([CLASS_OF_FORM.get(op.form, PLAIN) for op in TABLE], np.int8)


# call syntax of an operation, by its name or its form
_CALLS = {
    "same1": "dst, a",
    "same2": "dst, a, b",
    "scalar": "dst, a, number",
    "update": "dst, a, number",
    "integers1": "dst, a",
    "integers2": "dst, a, b",
    "row_reduce": "dst, a",
    "col_reduce": "dst, a",
    "row_expand": "dst, a",
    "col_expand": "dst, a",
    "row_pair": "dst, a, b",
    "col_pair": "dst, a, b",
    "convert": 'dst, a, mode="rint"',
    "compare": "dst, a, b, mode",
    "compare_scalar": "dst, a, number, mode",
    "select": "dst, mask, a, b",
    "texpands": "dst, number",
    "tci": "dst, first",
    "transpose": "dst, a",
    "gather": "dst, a, indices",
    "sort": "dst, a, indices",
    "concat": "dst, a, b, *indices",
    "sort32": "dst, src, idx, tmp=None",
    "merge": "dst, *operands, exhausted=False",
    "pad": "dst, a, number",
    "matmul": "dst, a, b",
    "tmatmul_bias": "dst, a, b, bias",
    "matmul_mx": "dst, a, a_scale, b, b_scale, a_type=None, b_type=None",
    "tmatmul_mx_bias": "dst, a, a_scale, b, b_scale, bias, a_type=None, b_type=None",
    "move": "dst, a",
    "extract": "dst, a, row, column",
    "send": "dst, a, row=0, column=0",
    "element": "tile, row, column, value",
    "ffts_cross_core_sync": "pipe, flag, mode=2",
    "set_intra_block": "pipe, flag",
    "tnotify": 'signal, value, op="set"',
    "wait_flag_dev": "flag",
    "wait_intra_block": "pipe, flag",
    "twait": 'signals, value, cmp="eq"',
    "poll": "signal",
    "load": "dst, tensor, pad=None, columns=1",
    "store": "tensor, a",
    "scatter": 'tensor, a, indices, outside="refuse", add=False',
    "put": "dst, src, staging, add=False",
    "push": "fifo, a",
    "pop": "fifo, dst",
    "read": "tensor, *index",
    "write": "tensor, *index, value=0",
    "clean": "tensor=None",
    "get": "tile, row, column",
    "set": "source, target, event",
    "wait": "source, target, event",
    "barrier": "pipe",
}


_PIPE_GIVEN = ("set", "wait", "barrier", "post", "await")


def call_of(op: Operation) -> str:
    """The call syntax of an operation, such as `tadd(dst, a, b)`."""
    return f"{op.name}({_CALLS.get(op.name) or _CALLS[op.form]})"


def markdown() -> str:
    """The table of operations for the guide."""
    lines = ["# Operations of the npu", "", "Methods of the core. Generated from `kernbench.npu.isa.operations`.", ""]
    lines += ["| operation | pipe | cost | meaning |", "|---|---|---|---|"]
    for op in OPERATIONS.values():
        pipe = (
            op.pipe or "by memories"
            if op.form not in ("set", "wait", "barrier", "post", "await")
            else op.pipe or "as given"
        )
        lines.append(f"| `{call_of(op)}` | {pipe} | {op.cost} | {op.meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"
