"""From what a program loads to the PTX that runs: text, a fat binary, or a refusal that names the remedy."""

from pathlib import Path
from typing import NoReturn

from kernbench.ptx.doors.driver.images.errors import ImageError
from kernbench.ptx.doors.driver.images.fatbin import Entry, is_fatbin, read_fatbins
from kernbench.ptx.doors.driver.images.kept import kept_text
from kernbench.ptx.emulator.engine.machine import target_runs_on

_ELF = b"\x7fELF"
# bytes of a packed text that is not unpacked to see which variant of an architecture it is for
_LARGE = 1 << 16
_NVVM = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


class NoPtxError(ImageError):
    """An image with nothing that runs on the emulated architecture."""


def texts_of(image: bytes, arch: str, folder: Path | None = None, *, in_file: str = "") -> list[str]:
    """The PTX texts of an image, one for each fat binary in it; they are linked where there are several.

    Of several, those with nothing for the architecture are left out: nvcc adds a library of its own to programs of more
    than one file. A compiler may have kept the PTX of machine code in `folder`. `in_file` is the program or library
    that the image is part of, where it is part of one: a refusal says what can be done about it.
    """
    remedy = _remedy(arch, in_file)
    if is_fatbin(image):
        parts = [entries for entries in read_fatbins(image) if entries]
        found = [text for text in (_best(entries, arch, folder) for entries in parts) if text]
        if parts and not found:
            _refuse(parts[0], arch, in_file, remedy)
        return found
    if image.startswith(_ELF):
        kept = kept_text(image, folder) if folder is not None else None
        if kept is not None:
            return [kept]
        raise NoPtxError(f"an image is machine code (a cubin), which cannot be emulated: {remedy}")
    if image.startswith(_NVVM):
        raise NoPtxError(f"an image is LLVM bitcode (LTO), which cannot be emulated: {remedy}")
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


def _refuse(entries: list[Entry], arch: str, in_file: str, remedy: str) -> NoReturn:
    """Say why nothing of a fat binary runs."""
    texts = [entry for entry in entries if entry.is_text]
    # large texts stay packed: libraries have many millions of bytes of them
    large = [len(entry.packed) >= _LARGE for entry in texts or entries]
    names = [f"sm_{e.arch}" if stays else e.target for e, stays in zip(texts or entries, large, strict=True)]
    targets = ", ".join(dict.fromkeys(names))
    who = f"the library {Path(in_file).name} of {package}" if (package := _package(in_file)) else "the program"
    if texts:
        other = "" if package else f", or run it with --arch {names[-1]}"
        raise NoPtxError(f"{who} has PTX for {targets}, which does not run on {arch}: {remedy}{other}")
    raise NoPtxError(f"{who} has machine code for {targets} and no PTX, which the emulator needs: {remedy}")


def remedy(arch: str) -> str:
    """The flag that adds PTX for an architecture."""
    number = arch.removeprefix("sm_")
    return f"compile with -gencode arch=compute_{number},code=compute_{number}"


# what a Python package that comes ready-built offers instead of a call that cannot be emulated
_INSTEAD = {
    "cupy": "CuPy has such for what sorts (sort, argsort, lexsort, unique) and for cupy.random.default_rng: do this "
    "step on the host, as in cupy.asarray(numpy.sort(cupy.asnumpy(x)))"
}


def _remedy(arch: str, in_file: str) -> str:
    """What to do about an image without PTX: compile it again, or, if somebody else has built it, do without it."""
    package = _package(in_file)
    if not package:
        return remedy(arch)
    instead = _INSTEAD.get(package, f"do this step on the host, or install a {package} that has PTX for {arch}")
    return f"it came ready-built, and a program cannot add to it; {instead}"


def _package(file: str) -> str:
    """The installed Python package that a file belongs to, or nothing."""
    parts = Path(file).parts
    folders = [number for number, part in enumerate(parts[:-1]) if part in ("site-packages", "dist-packages")]
    return parts[folders[-1] + 1].partition(".")[0] if folders else ""
