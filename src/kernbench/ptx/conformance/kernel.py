"""A kernel that applies one instruction to arrays of inputs, and its launch on any device."""

from collections.abc import Sequence
from string import Template
from typing import Any

import numpy as np

from kernbench.ptx.conformance.cases import Case, Value
from kernbench.ptx.conformance.inputs import Bits
from kernbench.ptx.text.types import TYPES

BLOCK = 128
ENTRY = "apply"
_LETTERS = "abcefg"


def source(case: Case, target: str = "sm_90", version: str = "8.7") -> str:
    """The PTX text: thread i takes lane i of each input and writes lane i of the output."""
    operands = [*zip(_LETTERS, case.inputs, strict=False)]
    names = {letter: _operand(letter, value) for letter, value in (*operands, ("d", case.output))}
    params = ", ".join(f".param .u64 {letter}_ptr" for letter, _ in (*operands, ("d", case.output)))
    lines = [
        f".version {version}\n.target {target}\n.address_size 64\n",
        f".visible .entry {ENTRY}({params}, .param .u32 lanes)\n{{",
        "  .reg .pred p, q;\n  .reg .b32 t, i, n, x;\n  .reg .b64 u, base, step;",
        *(_declare(letter, value) for letter, value in (*operands, ("d", case.output))),
        "  ld.param.u32 n, [lanes];\n  mov.u32 i, %ctaid.x;\n  mov.u32 x, %ntid.x;\n  mul.lo.u32 i, i, x;",
        "  mov.u32 x, %tid.x;\n  add.u32 i, i, x;\n  setp.ge.u32 q, i, n;\n  @q ret;",
        *(_move(letter, value, load=True) for letter, value in operands),
        f"  {Template(case.text).substitute(names)}",
        _move("d", case.output, load=False),
        "  ret;\n}\n",
    ]
    return "\n".join(lines)


def _register_bits(value: Value) -> int:
    return max(16, TYPES[value.type].bits)


def _operand(letter: str, value: Value) -> str:
    names = [f"%{letter}{i}" for i in range(value.registers)]
    return names[0] if value.registers == 1 else "{" + ", ".join(names) + "}"


def _declare(letter: str, value: Value) -> str:
    # f64 fragments of a matrix instruction must be in .f64 registers
    kind = f"f{_register_bits(value)}" if value.type == "f64" else f"b{_register_bits(value)}"
    return f"  .reg .{kind} %{letter}<{value.registers}>;"


def _move(letter: str, value: Value, load: bool) -> str:
    """Load or store every register of one operand: register r of lane i is element r * lanes + i."""
    size = TYPES[value.type].nbytes
    lines = [
        f"  ld.param.u64 base, [{letter}_ptr];\n  cvta.to.global.u64 base, base;",
        f"  mul.wide.u32 step, i, {size};\n  add.u64 base, base, step;\n  mul.wide.u32 step, n, {size};",
    ]
    for register in range(value.registers):
        name = f"%{letter}{register}"
        kind = f"b{8 * size}"
        lines.append(f"  ld.global.{kind} {name}, [base];" if load else f"  st.global.{kind} [base], {name};")
        lines.append("  add.u64 base, base, step;")
    return "\n".join(lines)


def run_case(device: Any, kernel: object, case: Case, inputs: Sequence[Bits], **options: object) -> Bits:
    """The instruction's results on `device`, [registers, lanes]; `kernel` is `source(case)`, parsed."""
    lanes = inputs[0].shape[-1]
    arrays = [device.array(given) for given in inputs]
    output = device.empty((case.output.registers, lanes), np.dtype(TYPES[case.output.type].storage), name="d")
    run = device.launch(kernel, -(-lanes // BLOCK), BLOCK, [*arrays, output, lanes], **options)
    if run.findings:
        raise AssertionError(f"{case.name}: {run.findings[0]}")
    result: Bits = output.numpy()
    for array in (*arrays, output):
        array.free()
    return result
