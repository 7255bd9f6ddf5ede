"""The table of machine instructions of a kernel, row by row."""

import numpy as np

from kernbench.ptx.sass.control import Control
from kernbench.ptx.sass.facts import facts
from kernbench.ptx.sass.pipes import family, is_known
from kernbench.ptx.sass.streams import Ops

_COLUMNS = 20


class Builder:
    """Collects instructions; `done` gives the table."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._operands: list[str] = []
        self._numbers: list[tuple[int, ...]] = []
        self.unknown: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    def add(
        self,
        name: str,
        control: Control,
        operands: str = "",
        reads: tuple[int, int] = (0, 0),
        flags: tuple[bool, bool, bool] = (False, False, False),
        origin: tuple[int, int, int] = (0, -1, -1),
    ) -> None:
        """One instruction; `reads` by bank, `flags`: predicated, implicit, backward; `origin`: line, row, address."""
        opcode = name.partition(".")[0]
        if not is_known(opcode):
            self.unknown.add(opcode)
        unit, known = family(name), facts(name)
        self._names.append(name)
        self._operands.append(operands)
        self._numbers.append(
            (
                unit.pipe,
                unit.act,
                known.width,
                *known.shape,
                known.bits,
                control.stall,
                control.yields,
                control.write_barrier,
                control.read_barrier,
                control.wait_mask,
                *reads,
                *flags,
                *origin,
            )
        )

    def done(self) -> Ops:
        """The table."""
        table = np.array(self._numbers, np.int64).reshape(len(self), _COLUMNS).T
        small, whole, flag = (table.astype(kind) for kind in (np.int8, np.int32, np.bool_))
        return Ops(
            mnemonic=tuple(self._names),
            operands=tuple(self._operands),
            pipe=small[0],
            act=small[1],
            width=whole[2],
            m=whole[3],
            n=whole[4],
            k=whole[5],
            bits=small[6],
            stall=small[7],
            yields=flag[8],
            write_barrier=small[9],
            read_barrier=small[10],
            wait_mask=small[11],
            even_reads=small[12],
            odd_reads=small[13],
            predicated=flag[14],
            implicit=flag[15],
            backward=flag[16],
            line=whole[17],
            instruction=whole[18],
            address=whole[19],
        )
