"""Waits that ptxas inserts where a compiler's code accesses registers of a wgmma operation in flight.

Compilers that emit `wgmma` leave out waits that ptxas adds (C7517: "warpgroup.wait is injected"), so the code is right
as the hardware runs it. Where they are needed follows from the text alone; the function is then decoded with them.
"""

from kernbench.ptx.emulator.analysis.in_flight import State, owned_registers, solve, step_groups
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding


def missing_waits(bodies: list[Body]) -> dict[str, list[int]]:
    """For each function that lacks waits, the lines that need one before them; only in code signed by a compiler."""
    found = {body.code.name: _missing(body) for body in bodies if _multiplies(body)}
    return {name: lines for name, lines in found.items() if lines}


def _multiplies(body: Body) -> bool:
    return any(resolved.effects.in_flight == "multiply" for resolved in body.resolved)


def _missing(body: Body) -> list[int]:
    lines = []
    for number, state in enumerate(solve(body, State(), _step)):
        if state is None:
            continue
        for position, decoding in enumerate(body.decodings[number]):
            if _touches(decoding, state):
                lines.append(body.starts[number] + position)
            _step(decoding, state)
    return lines


def _touches(d: Decoding, state: State) -> bool:
    """Whether an instruction accesses registers that an operation in flight may own."""
    if not state.written and not state.read:
        return False
    writes = {r.number for r in d.writes}
    if d.effects.in_flight == "multiply":
        # operations on the same accumulators are ordered; as A they are read like any register
        reads, writes = {r.number for r in owned_registers(d)} - writes, set()
    else:
        reads = {r.number for r in d.reads}
    return any(n in state.written for n in reads) or any(n in state.written or n in state.read for n in writes)


def _step(d: Decoding, state: State) -> None:
    """Apply an instruction to a state, with the wait before it if one is needed."""
    if _touches(d, state):
        state.written.clear()
        state.read.clear()
    step_groups(d, state)
