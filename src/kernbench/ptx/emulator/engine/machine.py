"""Architectures as the emulator sees them: how many CTAs are resident at once, and the limits of a launch."""

import re
from dataclasses import dataclass

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.isa.targets import FAMILIES


@dataclass(frozen=True, slots=True)
class Architecture:
    """Limits of an architecture: SMs; threads, warps and CTAs per SM; shared memory per SM and per block."""

    name: str
    sms: int
    threads_per_sm: int
    ctas_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    memory_bytes: int = 80 << 30

    @property
    def warps_per_sm(self) -> int:
        """Resident warps of one SM."""
        return self.threads_per_sm // 32

    def resident(self, threads: int, shared_bytes: int) -> int:
        """How many CTAs of this size are resident on the whole device at once."""
        warps = -(-threads // 32)
        by_shared = self.shared_per_sm // (shared_bytes + 1024) if shared_bytes else self.ctas_per_sm
        return self.sms * max(1, min(self.ctas_per_sm, self.warps_per_sm // warps, by_shared))


def _row(name: str, sms: int, threads: int, ctas: int, shared_sm: int, shared_block: int) -> Architecture:
    return Architecture(name, sms, threads, ctas, shared_sm << 10, shared_block << 10)


ARCHITECTURES = {
    row.name: row
    for row in (
        _row("sm_70", 80, 2048, 32, 96, 96),
        _row("sm_75", 40, 1024, 16, 64, 64),
        _row("sm_80", 108, 2048, 32, 164, 163),
        _row("sm_86", 84, 1536, 16, 100, 99),
        _row("sm_87", 16, 1536, 16, 164, 163),
        _row("sm_89", 128, 1536, 24, 100, 99),
        _row("sm_90", 132, 2048, 32, 228, 227),
        _row("sm_100", 148, 2048, 32, 228, 227),
        _row("sm_101", 20, 1536, 24, 228, 227),
        _row("sm_103", 148, 2048, 32, 228, 227),
        _row("sm_110", 20, 1536, 24, 228, 227),
        _row("sm_120", 170, 1536, 24, 100, 99),
        _row("sm_121", 48, 1536, 24, 100, 99),
    )
}
_NAME = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


def architecture(name: str) -> Architecture:
    """The architecture of a target's name; suffixes, such as the a of sm_90a, are ignored."""
    match = _NAME.fullmatch(name)
    plain = f"sm_{match[1]}" if match else name
    if plain not in ARCHITECTURES:
        raise MisuseError(unknown("architecture", name, ARCHITECTURES))
    return ARCHITECTURES[plain]


def target_runs_on(target: str, arch: str) -> bool:
    """Whether code for `target` runs on `arch`.

    Plain targets run on the same or newer architectures, "f" targets within their family, "a" targets on their own
    only.
    """
    wanted, have = _NAME.fullmatch(target), _NAME.fullmatch(arch)
    if wanted is None or have is None:
        return True
    older = int(wanted[1]) <= int(have[1])
    if wanted[2] == "a":
        return wanted[1] == have[1] and have[2] == "a"
    if wanted[2] == "f":
        return any(int(wanted[1]) in own and int(have[1]) in own for own in FAMILIES.values()) and older
    return older
