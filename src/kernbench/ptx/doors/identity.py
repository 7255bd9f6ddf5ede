"""Which kernel a launch is of: its name, the location of its source, and what that is.

Files may have kernels of one name, a file may make several of one name, and a file may be written again. A front end
that knows a kernel's source says what it is; for others it is found in the PTX.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePath

from kernbench.ptx.doors.records import Record
from kernbench.ptx.text.module import Block, Kernel, Loc
from kernbench.result.finding import SourceLocation, location_dict

# hexadecimal digits of a content that are kept, and that are shown
_KEPT, _SHOWN = 16, 6
# a kernel as reports name it where others have its name: NAME@FILE:LINE#CONTENT, each part but one may be missing
_NAMED = re.compile(r"(?P<title>[^@]*?)(@(?P<file>[^@:]+)(:(?P<line>\d+))?)?(#(?P<content>[0-9a-f]{6,}))?")


@dataclass(frozen=True)
class KernelIdentity:
    """A kernel: its name in reports, the file and line of its source if known, and a digest of its content.

    What a compiler makes of it for other types, constants or architectures is the same kernel.
    """

    title: str
    file: str = ""
    line: int = 0
    content: str = ""

    @property
    def source(self) -> SourceLocation | None:
        """The location of its source, if known."""
        return SourceLocation(self.file, self.line, self.title) if self.file else None

    @property
    def is_bare(self) -> bool:
        """Whether nothing but its name is known: it may be any kernel of that name."""
        return not self.file and not self.content

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"title": self.title, "source": location_dict(self.source), "content": self.content}

    def matches(self, pattern: str) -> bool:
        """Whether a pattern of an option means it: of its name, or NAME@FILE:LINE as reports name kernels."""
        if _fits(pattern, self.title):
            return True
        named = _NAMED.fullmatch(pattern)
        if named is None or not (named["file"] or named["content"]):
            return False
        return (
            (not named["title"] or _fits(named["title"], self.title))
            and (not named["file"] or self._is_in(named["file"]))
            and (not named["line"] or int(named["line"]) == self.line)
            and self.content.startswith(named["content"] or "")
        )

    def _is_in(self, file: str) -> bool:
        return fnmatchcase(self.file, file) or f"/{self.file}".endswith(f"/{file.removeprefix('./')}")


def _fits(pattern: str, title: str) -> bool:
    """A plain name also matches names that contain it."""
    return fnmatchcase(title, pattern) or pattern in title


def read_identity(record: Record) -> KernelIdentity:
    """The kernel of a record of a session."""
    source = record.get("source") or {"file": "", "line": 0}
    return KernelIdentity(record["title"], source["file"], source["line"], record.get("content", ""))


def digest_of(content: str | bytes) -> str:
    """A short digest of a content."""
    data = content if isinstance(content, bytes) else content.encode(errors="replace")
    return sha256(data).hexdigest()[:_KEPT]


def identity_of(kernel: Kernel, title: str) -> KernelIdentity:
    """A kernel of PTX: where its source begins, and the content of that file, or its own where that is unknown."""
    lines = list(_own_lines(kernel.function.body))
    if not lines:
        return KernelIdentity(title, content=digest_of(kernel.emit()))
    # in the file of its first line; compilers may move a later one before it
    number = lines[0][0]
    file = kernel.module.source_files.get(number, "")
    first = min(line for one, line in lines if one == number)
    return KernelIdentity(title, file, first, _digest_of_file(file) or digest_of(kernel.emit()))


def _own_lines(block: Block | None) -> Iterator[tuple[int, int]]:
    """File and line of each `.loc` of a kernel's own code, without what was inlined."""
    for statement in block.statements if block is not None else ():
        if isinstance(statement, Loc) and statement.inlined_at is None:
            yield statement.file, statement.source_line
        elif isinstance(statement, Block):
            yield from _own_lines(statement)


def _digest_of_file(file: str) -> str:
    try:
        return digest_of(Path(file).read_bytes()) if file else ""
    except (OSError, ValueError):
        return ""


def labels(kernels: Collection[KernelIdentity]) -> dict[KernelIdentity, str]:
    """A name of its own for each kernel: that of the kernel if no other one has it, else with its source or content."""
    alike: dict[str, list[KernelIdentity]] = {}
    for kernel in dict.fromkeys(kernels):
        alike.setdefault(kernel.title, []).append(kernel)
    return {kernel: _label(kernel, others) for others in alike.values() for kernel in others}


def _label(kernel: KernelIdentity, alike: Collection[KernelIdentity]) -> str:
    if len(alike) == 1 or kernel.is_bare:
        return kernel.title
    files = {one.file for one in alike}
    source = f"@{_shortest(kernel.file, files)}:{kernel.line}" if kernel.file else ""
    same = [one for one in alike if (one.file, one.line) == (kernel.file, kernel.line)]
    distinct = source and len(same) == 1
    return kernel.title + source + ("" if distinct else f"#{kernel.content[:_SHOWN]}")


def _shortest(file: str, files: Collection[str]) -> str:
    """The shortest end of a path that no other file has."""
    parts = PurePath(file).parts
    for count in range(1, len(parts)):
        end = "/".join(parts[-count:])
        if not any(other != file and f"/{other}".endswith(f"/{end}") for other in files):
            return end
    return file
