"""Whose fault a finding is: the program's own, a library's, or that of the compiler which made the kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.emulator.program.locations import library_of
from kernbench.result.finding import COMPILER, LIBRARY, Blame, Finding


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparison: "3.6.0+git1" is 3, 6, 0."""
    numbers = version.partition("+")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdecimal())


@dataclass(frozen=True)
class Compiler:
    """A compiler of kernels: its name and version, the kinds of findings that programs in its language cannot cause,
    and by kind the release from which on it does not cause them.
    """

    name: str
    version: str
    own: frozenset[str]
    mended: Mapping[str, str]

    def blame(self, kind: str) -> Blame | None:
        """The compiler's blame for a kind of finding; None if programs may cause it."""
        if kind not in self.own:
            return None
        mended = self.mended.get(kind, "")
        # a later release that still causes it is not mended
        known = mended and release(self.version) < release(mended)
        return Blame(COMPILER, f"{self.name} {self.version}".strip(), mended if known else "")


# the language has neither shared memory nor fences, mbarriers, asynchronous copies or tensor memory: what of these is
# wrong is the compiler's doing. The missing fence: 3.4.0, 3.5.1, 3.6.0 and 3.7.0 leave it out for sm_100a (and formally
# for sm_90a), 3.8.0 and 3.9.0 do not.
_TRITON = frozenset(
    {
        *("missing-fence", "in-flight", "transaction-bytes", "tensor-memory"),
        *("mbarrier-misuse", "mbarrier-count", "mbarrier-phase"),
    }
)
_TRITON_MENDED = {"missing-fence": "3.8"}


def triton(version: str) -> Compiler:
    """The compiler of Triton's language; not of Gluon, in which programs write fences themselves."""
    return Compiler("Triton", version, _TRITON, _TRITON_MENDED)


def blamed(findings: Sequence[Finding], compiler: Compiler | None) -> list[Finding]:
    """Findings with whose fault they are, if not the program's own."""
    return [replace(finding, blame=_blame(finding, compiler)) for finding in findings]


def _blame(finding: Finding, compiler: Compiler | None) -> Blame | None:
    found = None if compiler is None else compiler.blame(finding.kind)
    library = "" if finding.where is None else library_of(finding.where.file)
    return found or (Blame(LIBRARY, library) if library else None)
