"""Random numbers as Triton makes them: Philox on a seed and an offset, the same bits on every machine."""

from math import pi

import numpy as np

from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE
from kernbench.triton_emu.engine.core import Core
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import Operand
from kernbench.triton_emu.operations import numerics
from kernbench.triton_emu.operations.arithmetic import Arithmetic
from kernbench.triton_emu.operations.computing import Computing

__kernbench_internal__ = True

_Four = tuple[TensorHandle, TensorHandle, TensorHandle, TensorHandle]
# the largest i32 times this, rounded to f32, stays below one
_UNIFORM = 4.6566127342e-10


class Randomness(Part):
    """`rand` and its relatives. Each round of Philox is one command; the rest is arithmetic like any other."""

    def __init__(self, core: Core, arithmetic: Arithmetic, computing: Computing):
        super().__init__(core)
        self._operand = arithmetic._operand
        self._compute = computing

    def philox(self, seed: Operand, c0: Operand, c1: Operand, c2: Operand, c3: Operand, n_rounds: int = 10) -> _Four:
        """Four blocks of random i32 from a seed and four blocks (or numbers) of counters."""
        site = self._sites.here()
        operands = [self._operand(c) for c in (c0, c1, c2, c3)]
        handles = [handle for handle, _ in operands if handle is not None]
        if any(handle.dtype not in ("i32", "i8") for handle in handles):
            self._fail("dtype", f"philox: counters of {[h.dtype for h in handles]}", "offsets are integers: tl.arange")
        shape = np.broadcast_shapes(*(handle.shape for handle in handles))
        key = seed if isinstance(seed, int) else int(self._compute.value_of(self._handle("philox", seed)))
        kind, data = self._kind((4, *shape), "i32"), None
        if all(value is not None for _, value in operands):
            counters = [np.broadcast_to(np.asarray(value), shape) for _, value in operands]
            data = numerics.philox(key, counters, n_rounds)
        first, second, third = ([handle.number for handle in handles] + [NONE] * 3)[:3]
        state = self._emit("philox", site, kind, data, first, second, third)
        for _ in range(n_rounds - 1):
            state = self._emit("philox", site, kind, data, state.number, out=state)
        return state[0], state[1], state[2], state[3]

    def randint4x(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> _Four:
        """Four blocks of random i32 (all 32 bits) of the shape of `offset`."""
        return self.philox(seed, self._handle("randint4x", offset), 0, 0, 0, n_rounds)

    def randint(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> TensorHandle:
        """A block of random i32 (all 32 bits)."""
        return self.randint4x(seed, offset, n_rounds)[0]

    def rand4x(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> tuple[TensorHandle, ...]:
        """Four blocks of random f32 from [0, 1)."""
        return tuple(self.uint_to_uniform_float(bits) for bits in self.randint4x(seed, offset, n_rounds))

    def rand(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> TensorHandle:
        """A block of random f32 from [0, 1)."""
        return self.uint_to_uniform_float(self.randint(seed, offset, n_rounds))

    def uint_to_uniform_float(self, x: TensorHandle) -> TensorHandle:
        """Random bits (i32) as f32 from [0, 1)."""
        return self._compute.where(x < 0, ~x, x) * _UNIFORM

    def pair_uniform_to_normal(self, u1: TensorHandle, u2: TensorHandle) -> tuple[TensorHandle, TensorHandle]:
        """Two uniform blocks as two normal ones (Box and Muller)."""
        angle = u2 * (2 * pi)
        radius = self._compute.sqrt(self._compute.log(self._compute.maximum(u1, 1.0e-7)) * -2.0)  # type: ignore[attr-defined]
        return radius * self._compute.cos(angle), radius * self._compute.sin(angle)  # type: ignore[attr-defined]

    def randn(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> TensorHandle:
        """A block of random f32 of the standard normal distribution."""
        first, second, *_ = self.randint4x(seed, offset, n_rounds)
        uniform = self.uint_to_uniform_float(first), self.uint_to_uniform_float(second)
        return self.pair_uniform_to_normal(*uniform)[0]

    def randn4x(self, seed: Operand, offset: TensorHandle, n_rounds: int = 10) -> tuple[TensorHandle, ...]:
        """Four blocks of random f32 of the standard normal distribution."""
        u = self.rand4x(seed, offset, n_rounds)
        return *self.pair_uniform_to_normal(u[0], u[1]), *self.pair_uniform_to_normal(u[2], u[3])
