"""Builds programs: a kernel's text is decoded, analysed, and assembled."""

import logging
import pickle
from collections.abc import Hashable
from weakref import WeakKeyDictionary

from kernbench.ptx.emulator.analysis.injected_waits import missing_waits
from kernbench.ptx.emulator.instructions.decode import Body, Decoded, decode
from kernbench.ptx.emulator.kept import files, programs
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.text.keeping import Kept, no_collections
from kernbench.ptx.text.module import Item, Kernel, Module
from kernbench.ptx.text.parser import is_as_read
from kernbench.ptx.validation.validation import validate

_LOG = logging.getLogger(__name__)

# cached programs by content, up to this many instructions in total; the items are held so that their identity is unique
_PROGRAMS: Kept[Hashable, tuple[tuple[Item, ...], Program]] = Kept(200_000)
# valid modules, up to this many characters in total; a module that was not read from a text counts as `_UNREAD`
_VALID: Kept[Hashable, tuple[Item, ...]] = Kept(8_000_000)
_UNREAD = 100_000
# texts longer than this are cached on disk as well: a shorter one is built in less time than it takes to write it
_LONG = 2_000
_VALID_TEXT = b"valid"
# what programs were assembled from, until somebody takes it
_DECODED: "WeakKeyDictionary[Program, Decoded]" = WeakKeyDictionary()


def program_of(
    kernel: Kernel, clustered: bool = False, aliased: bool = False, recorded: bool = False, exact: bool = False
) -> Program:
    """The program of a kernel of a valid module; programs are shared by all devices and launches.

    A program is immutable: per-launch state is in the launch. An `exact` one rounds where the instructions do that
    ptxas makes of the kernel.
    """
    key = (_content(kernel.module), kernel.name, clustered, aliased, recorded, exact)
    known = _PROGRAMS.get(key)
    if known is None:
        program = _program(_as_ptxas_rounds(kernel) if exact else kernel, clustered, aliased, recorded)
        known = (kernel.module.items, program)
        _PROGRAMS.put(key, known, len(program.sites))
    return known[1]


def _as_ptxas_rounds(kernel: Kernel) -> Kernel:
    from kernbench.ptx.assembled import assembled

    return assembled(kernel)


def check_valid(module: Module) -> None:
    """Raise `PtxError` for the first error in a module; valid modules are remembered."""
    key = _content(module)
    if _VALID.get(key) is None:
        _validate(module)
        _VALID.put(key, module.items, len(module.source) or _UNREAD)


def _program(kernel: Kernel, clustered: bool, aliased: bool, recorded: bool) -> Program:
    """A program from the disk cache, or built and cached."""
    if recorded or not is_kept(kernel.module):
        return build(kernel, clustered, aliased=aliased, recorded=recorded)[0]
    name = files.name_of(kernel.module.source, "program", kernel.name, clustered, aliased)
    found = _kept(name, kernel, clustered, aliased)
    if found is None:
        found, _ = build(kernel, clustered, aliased=aliased)
        _keep(name, found)
    return found


def _keep(name: str, program: Program) -> None:
    try:
        with no_collections():
            files.write(name, programs.to_bytes(program))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # not everything in a program can be serialised
        _LOG.info("the program of %s is not kept on disk: %s", program.kernel.name, error)


def _kept(name: str, kernel: Kernel, clustered: bool, aliased: bool) -> Program | None:
    data = files.read(name)
    if data is None:
        return None
    try:
        with no_collections():
            return programs.from_bytes(data, kernel, lambda: build(kernel, clustered, aliased=aliased)[0])
    except Exception as error:
        # whatever is wrong: it is built and cached again
        _LOG.info("the kept program of %s is not usable and is built anew: %s", kernel.name, error)
        return None


def _validate(module: Module) -> None:
    """Raise `PtxError` for the first error, unless the same text is cached as valid."""
    if not is_kept(module):
        validate(module)
        return
    name = files.name_of(module.source, "valid")
    if files.read(name) is None:
        validate(module)
        files.write(name, _VALID_TEXT)


def is_kept(module: Module) -> bool:
    """Whether what is made of a module is kept on disk."""
    return len(module.source) > _LONG and is_as_read(module)


def _content(module: Module) -> Hashable:
    """A key that is equal for modules read from the same text, and for no others."""
    return id(module.items), module.version, module.target, module.address_size, module.source


def build(
    kernel: Kernel,
    clustered: bool = False,
    probed: bool = False,
    named: bool = False,
    aliased: bool = False,
    recorded: bool = False,
) -> tuple[Program, list[Body]]:
    """The program of a kernel, and its functions; raises `PtxError` for unsupported code.

    `clustered`: launched with clusters of several CTAs; `probed`: a probe inspects it; `named`: its checkpoints are
    needed; `aliased`: several parameters point to one array; `recorded`: its instructions report to a recorder.
    """
    # many modules, which programs from the disk do not need
    from kernbench.ptx.emulator.analysis.analysis import analyse
    from kernbench.ptx.emulator.analysis.assembling import assemble

    with no_collections():
        decoded = _decoded(kernel, clustered, probed, named)
        program = assemble(decoded, analyse(decoded, aliased), aliased, recorded)
    _DECODED[program] = decoded
    return program, decoded.bodies


def _decoded(kernel: Kernel, clustered: bool = False, probed: bool = False, named: bool = False) -> Decoded:
    decoded = decode(kernel, clustered, probed, named)
    if decoded.compiler and (waits := missing_waits(decoded.bodies)):
        decoded = decode(kernel, clustered, probed, named, waits)
    return decoded


def take_decoded(program: Program) -> Decoded:
    """What a program was assembled from; decoded again for a program from the disk cache, and the second time."""
    found = _DECODED.pop(program, None)
    return _decoded(program.kernel) if found is None else found


def drop_decoded(program: Program) -> None:
    """Nobody will take what a program was assembled from."""
    _DECODED.pop(program, None)
