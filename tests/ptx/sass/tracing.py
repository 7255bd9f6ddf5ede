"""Recordings of small PTX programs, made here by running a warp's 32 lanes through them in plain Python.

It knows integer arithmetic, predicates, branches, plain loads and stores, barriers; memory reads as zero. Lanes that
part run side by side in the order of the text until they meet: what the streams need of a recording, and no more.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, Instructions, LaunchRecording, Traces
from kernbench.ptx.text.module import Float, Instruction, Integer, Label, Name
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.walking import statements_of

WARP = 32
KINDS = {
    "ld.global": Kind.GLOBAL_LOAD,
    "st.global": Kind.GLOBAL_STORE,
    "ld.shared": Kind.SHARED_LOAD,
    "st.shared": Kind.SHARED_STORE,
    "atom.global": Kind.GLOBAL_ATOMIC,
    "red.global": Kind.GLOBAL_REDUCTION,
    "bar.sync": Kind.BARRIER_SYNC,
    "membar": Kind.FENCE,
}
COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
COMPUTE: dict[str, Callable[..., np.ndarray]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvta": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "fma": lambda a, b, c: a * 0,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "rem": lambda a, b: a % np.maximum(b, 1),
    "div": lambda a, b: a // np.maximum(b, 1),
    "ex2": lambda a: a * 0,
}


def record(
    text: str, entry: str = "", arguments: Mapping[str, int] | None = None, warps: int = 1, arch: str = "sm_90a"
) -> LaunchRecording:
    """The recording of one CTA of `warps` warps; `arguments` by parameter, 0 for those that are not given."""
    kernel = parse(text).kernels[entry] if entry else next(iter(parse(text).kernels.values()))
    program = _Program(kernel)
    traces = [program.run(dict(arguments or {}), warp) for warp in range(warps)]
    return _packed(text, kernel.name, arch, program, traces)


class _Program:
    def __init__(self, kernel):
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        lists: dict[str, tuple[str, ...]] = {}
        for statement in statements_of(kernel.function.body):
            if isinstance(statement, Instruction):
                self.code.append(statement)
            elif isinstance(statement, Label) and statement.directive:
                lists[statement.name] = statement.targets
            elif isinstance(statement, Label):
                self.labels[statement.name] = len(self.code)
        self.lists = lists
        begins = {0, *self.labels.values()}
        begins |= {n + 1 for n, one in enumerate(self.code) if one.opcode in ("bra", "brx", "ret", "exit")}
        self.begins = sorted(begin for begin in begins if begin < len(self.code))
        self.block = np.searchsorted(self.begins, np.arange(len(self.code)), side="right") - 1

    def kind(self, one: Instruction) -> Kind:
        return next((kind for name, kind in KINDS.items() if one.name.startswith(name)), Kind.NONE)

    def run(self, arguments: dict[str, int], warp: int) -> list[tuple[int, int, list[int]]]:
        """Steps of a warp: block, lanes, rows of events."""
        lanes, steps = _Lanes(arguments, warp), []
        where = np.zeros(WARP, np.int64)
        for _ in range(100_000):
            alive = where < len(self.code)
            if not alive.any():
                return steps
            at = int(where[alive].min())
            active = where == at
            first, last = at, self._end(at)
            events = []
            where[active] = last
            for row in range(first, last):
                events += self._execute(row, lanes, active, where)
            steps.append((int(self.block[at]), int(active.sum()), events))
        raise AssertionError("the program does not end")

    def _end(self, at: int) -> int:
        later = [begin for begin in self.begins if begin > at]
        return later[0] if later else len(self.code)

    def _execute(self, row, lanes, active, where) -> list[int]:
        one = self.code[row]
        on = active.copy()
        if one.guard is not None:
            on &= lanes.registers[one.guard.register].astype(bool) != one.guard.negated
        if one.opcode in ("bra", "brx", "ret", "exit"):
            self._jump(one, lanes, on, where)
        elif self.kind(one) != Kind.NONE:
            if one.opcode in ("ld", "atom") and on.any():
                lanes.write(one.operands[0], np.zeros(WARP, np.int64), on)
            return [row] if on.any() else []
        else:
            lanes.compute(one, on)
        return []

    def _jump(self, one, lanes, on, where) -> None:
        if one.opcode in ("ret", "exit"):
            where[on] = len(self.code)
        elif one.opcode == "bra":
            where[on] = self.labels[one.operands[0].text]
        else:
            listed = [self.labels[name] for name in self.lists[one.operands[1].text]]
            where[on] = np.array(listed)[lanes.value(one.operands[0])[on]]


class _Lanes:
    def __init__(self, arguments: dict[str, int], warp: int):
        self.arguments = arguments
        self.registers: dict[str, np.ndarray] = {}
        tid = np.arange(WARP) + WARP * warp
        self.special = {"%tid.x": tid, "%laneid": np.arange(WARP), "%ctaid.x": tid * 0, "%ntid.x": tid * 0 + WARP}

    def value(self, operand) -> np.ndarray:
        if isinstance(operand, Integer):
            return np.full(WARP, operand.value, np.int64)
        if isinstance(operand, Float):
            return np.zeros(WARP, np.int64)
        assert isinstance(operand, Name), operand
        if operand.text in self.special:
            return self.special[operand.text]
        return self.registers.get(operand.text, np.zeros(WARP, np.int64))

    def write(self, operand, value: np.ndarray, on: np.ndarray) -> None:
        for name in re.findall(r"%\w+", str(operand)):
            self.registers[name] = np.where(on, value, self.registers.get(name, np.zeros(WARP, np.int64)))

    def compute(self, one: Instruction, on: np.ndarray) -> None:
        target, *sources = one.operands
        if one.opcode == "ld":
            value = np.full(WARP, self.arguments.get(sources[0].base.text, 0), np.int64)
        elif one.opcode == "setp":
            value = COMPARE[one.modifiers[0]](*map(self.value, sources)).astype(np.int64)
        elif one.opcode == "selp":
            a, b, chosen = map(self.value, sources)
            value = np.where(chosen.astype(bool), a, b)
        else:
            value = COMPUTE[one.opcode](*map(self.value, sources))
        self.write(target, value, on)


def _packed(text, entry, arch, program: _Program, traces) -> LaunchRecording:
    code = program.code
    rows = Instructions(
        np.array([one.line for one in code], np.int32),
        tuple(one.name for one in code),
        tuple(one.name for one in code),
        program.block.astype(np.int32),
        (entry,) * len(code),
        np.array([program.kind(one) for one in code], np.uint8),
        np.array([one.guard is not None for one in code], bool),
    )
    steps = [step for trace in traces for step in trace]
    events = [row for _, _, held in steps for row in held]
    nothing = np.zeros(len(events), np.int32)
    return LaunchRecording(
        text, entry, arch, (1, 1, 1), (WARP * len(traces), 1, 1), (1, 1, 1), 0, 0, 0, rows,
        np.zeros(1, np.int32), np.arange(len(traces), dtype=np.int32)[None],
        Traces(
            np.cumsum([0, *map(len, traces)]),
            np.array([block for block, _, _ in steps], np.int32),
            np.array([lanes for _, lanes, _ in steps], np.uint8),
            np.cumsum([0, *(len(held) for _, _, held in steps)]),
        ),
        Events(
            np.array(events, np.int32),
            np.array([rows.kind[row] for row in events], np.uint8),
            *(nothing for _ in range(14)),
        ),
    )  # fmt: skip
