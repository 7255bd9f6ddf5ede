"""A kernel's text becomes the program that is run: decoded, analysed, and assembled from the facts that were found."""

from collections.abc import Hashable

from kernbench.ptx.emulator.analysis.analysis import analyse
from kernbench.ptx.emulator.analysis.assembling import assemble
from kernbench.ptx.emulator.analysis.injected_waits import missing_waits
from kernbench.ptx.emulator.instructions.decode import Body, decode
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.text.keeping import Kept, no_collections
from kernbench.ptx.text.module import Item, Kernel, Module
from kernbench.ptx.validation.validation import validate

# programs by what they are made of, up to this many instructions; the items are held so that their identity is theirs
_PROGRAMS: Kept[Hashable, tuple[tuple[Item, ...], Program]] = Kept(200_000)
# modules that were found valid, up to this many characters; those that were not read from a text count as much as
_VALID: Kept[Hashable, tuple[Item, ...]] = Kept(8_000_000)
_UNREAD = 100_000


def program_of(kernel: Kernel, clustered: bool = False, aliased: bool = False) -> Program:
    """The program of a kernel of a valid module; one that was built before is shared by all devices and launches.

    A program is not changed once it is built: what a launch adds lies in the launch.
    """
    key = (_content(kernel.module), kernel.name, clustered, aliased)
    known = _PROGRAMS.get(key)
    if known is None:
        program, _ = build(kernel, clustered, aliased=aliased)
        known = (kernel.module.items, program)
        _PROGRAMS.put(key, known, len(program.sites))
    return known[1]


def check_valid(module: Module) -> None:
    """Raise `PtxError` for the first thing that is wrong in a module; what was found valid is not looked at again."""
    key = _content(module)
    if _VALID.get(key) is None:
        validate(module)
        _VALID.put(key, module.items, len(module.source) or _UNREAD)


def _content(module: Module) -> Hashable:
    """What two modules that were read from the same text have in common, and no others."""
    return id(module.items), module.version, module.target, module.address_size, module.source


def build(
    kernel: Kernel, clustered: bool = False, probed: bool = False, named: bool = False, aliased: bool = False
) -> tuple[Program, list[Body]]:
    """The program of a kernel, and its functions; raises `PtxError` for what cannot be run.

    `clustered` says that it is launched with clusters of several CTAs; `probed` that somebody looks inside; `named`
    that its checkpoints are wanted; `aliased` that several parameters point to one array.
    """
    with no_collections():
        decoded = decode(kernel, clustered, probed, named)
        if decoded.compiler and (waits := missing_waits(decoded.bodies)):
            decoded = decode(kernel, clustered, probed, named, waits)
        program = assemble(decoded, analyse(decoded, aliased), aliased)
    return program, decoded.bodies
