"""From what a program loads to the PTX that runs: text, a fat binary, or a refusal that names the remedy."""

from pathlib import Path
from typing import NoReturn

from kernbench.ptx.doors.driver.images.errors import ImageError
from kernbench.ptx.doors.driver.images.fatbin import Entry, is_fatbin, read_fatbins
from kernbench.ptx.doors.driver.images.kept import kept_text
from kernbench.ptx.emulator.engine.machine import target_runs_on

_ELF = b"\x7fELF"
_NVVM = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class NoPtxError(ImageError):
    """An image with nothing that runs on the emulated architecture."""


def texts_of(image: bytes, arch: str, folder: Path | None = None) -> list[str]:
    """The PTX texts of an image, one for each fat binary in it; they are linked where there are several.

    Of several, those with nothing for the architecture are left out: nvcc adds a library of its own to programs of more
    than one file. A compiler may have kept the PTX of machine code in `folder`.
    """
    if is_fatbin(image):
        parts = [entries for entries in read_fatbins(image) if entries]
        found = [text for text in (_best(entries, arch, folder) for entries in parts) if text]
        if parts and not found:
            _refuse(parts[0], arch)
        return found
    if image.startswith(_ELF):
        kept = kept_text(image, folder) if folder is not None else None
        if kept is not None:
            return [kept]
        raise NoPtxError(f"an image is machine code (a cubin), which cannot be emulated: {remedy(arch)}")
    if image.startswith(_NVVM):
        raise NoPtxError(f"an image is LLVM bitcode (LTO), which cannot be emulated: {remedy(arch)}")
    text = image.rstrip(b"\0").decode(errors="replace")
    if ".version" not in text:
        raise ImageError(
            f"an image of {len(image)} bytes is neither PTX nor a fat binary; it begins with {image[:16]!r}"
        )
    return [text]


def _best(entries: list[Entry], arch: str, folder: Path | None) -> str:
    """The PTX for the newest target that the architecture runs, or what a compiler kept; empty where there is none."""
    number = int("".join(filter(str.isdecimal, arch)))
    # texts for later ones are not even unpacked
    texts = [entry for entry in entries if entry.is_text and entry.arch <= number]
    fit = [entry for entry in texts if target_runs_on(entry.target, arch)]
    if fit:
        return max(fit, key=lambda entry: (entry.arch, entry.target)).text
    codes = [entry.code for entry in entries if folder is not None and not entry.is_text]
    kept = (kept_text(code, folder) for code in codes if folder is not None)
    return next((text for text in kept if text is not None), "")


def _refuse(entries: list[Entry], arch: str) -> NoReturn:
    """Say why nothing of a fat binary runs."""
    texts = [entry for entry in entries if entry.is_text]
    targets = ", ".join(dict.fromkeys(entry.target for entry in texts or entries))
    if texts:
        raise NoPtxError(
            f"the program has PTX for {targets}, which does not run on {arch}: {remedy(arch)}, or run it with --arch "
            f"{texts[-1].target}"
        )
    raise NoPtxError(f"the program has machine code for {targets} and no PTX, which the emulator needs: {remedy(arch)}")


def remedy(arch: str) -> str:
    """The flag that adds PTX for an architecture."""
    number = arch.removeprefix("sm_")
    return f"compile with -gencode arch=compute_{number},code=compute_{number}"
