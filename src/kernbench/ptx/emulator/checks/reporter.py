"""Turning what was seen into findings: places, names of threads and arrays, and folding."""

import linecache
from dataclasses import dataclass, field
from math import prod
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes import WARP
from kernbench.ptx.emulator.memory.cells import WARP_LIMIT
from kernbench.ptx.emulator.program import Program, Site
from kernbench.result.finding import Finding, FindingLog, Other, Place

# PTX lines of one source line that a finding names
_LINES_NAMED = 4


@dataclass(eq=False)
class _Told:
    """What a finding said first, and the instructions of its source line that it was met at."""

    site: Site
    message: str
    others: tuple[Other, ...]
    sites: dict[int, Site] = field(default_factory=dict)

    def lines(self) -> str:
        """The PTX lines, shortly."""
        lines = sorted(self.sites)
        more = f" and {len(lines) - _LINES_NAMED} more" if len(lines) > _LINES_NAMED else ""
        return f"PTX line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:_LINES_NAMED]))}{more}"


class Reporter:
    """Collects the findings of one launch."""

    def __init__(self, program: Program):
        self.program = program
        self.log = FindingLog()
        self._told: dict[tuple[Any, ...], _Told] = {}
        self.file = f"<ptx {program.kernel.name}>"
        source = program.kernel.module.source
        if source:
            lines = source.splitlines(keepends=True)
            linecache.cache[self.file] = (len(source), None, lines, self.file)

    def place(self, site: Site) -> Place:
        """The source line a site was compiled from; its PTX line where that is not known."""
        if site.source_line and site.source_file:
            return Place(site.source_file, site.source_line, site.function)
        return self.ptx(site)

    def ptx(self, site: Site) -> Place:
        """The PTX line of a site."""
        return Place(self.file, site.line, site.function)

    def _beside(self, told: _Told) -> tuple[Other, ...]:
        """Of a source line: the line in the function that was inlined there, and its PTX lines."""
        site = told.site
        inner = Place(site.inlined_file, site.inlined_line, site.function) if site.inlined_file else None
        lines = sorted(told.sites)[:_LINES_NAMED]
        return (
            *((Other("in the inlined function", inner),) if inner else ()),
            *(Other("in PTX", self.ptx(told.sites[line])) for line in lines),
        )

    def add(
        self,
        kind: str,
        site: Site,
        message: str,
        hint: str,
        count: int = 1,
        others: tuple[Other, ...] = (),
        about: Any = None,
        register: str = "",
        array: str = "",
    ) -> None:
        """One finding at a site; `about` keeps two apart that share a line.

        Instructions of one source line, as of an unrolled loop, fold where they are alike and meant for one `array`.
        Where the source is not known each PTX line has findings of its own, by `register`.
        """
        place = self.place(site)
        subject: tuple[Any, ...] = (about, register, site.line)
        if place != self.ptx(site):
            subject = (about, array, site.opcode)
        told = self._told.setdefault((kind, place, subject), _Told(site, message, others))
        told.sites.setdefault(site.line, site)
        text = f"`{told.site.text}`" if told.site.text else ""
        others = told.others
        if place != self.ptx(site):
            text += f" ({told.lines()})"
            others += self._beside(told)
        found = Finding(kind, f"{text}: {told.message}" if text else told.message, place, others, hint, count)
        self.log.add(found, subject, restated=True)

    def general(
        self, kind: str, message: str, hint: str, others: tuple[Other, ...] = (), site: Site | None = None
    ) -> None:
        """One finding of the whole launch."""
        where = None if site is None else self.place(site)
        self.log.add(Finding(kind, message, where, others, hint))


def by_axis(number: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    """A number as coordinates, x fastest."""
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def thread_name(batch: Any, lane: int) -> str:
    """A lane of a batch as its thread and block."""
    thread = int(batch.thread[lane])
    cta = int(batch.numbers[(lane // WARP) % batch.ctas])
    return f"thread {by_axis(thread, batch.launch.block)} of block {by_axis(cta, batch.launch.grid)}"


def actor_name(launch: Any, number: int, lane: int) -> str:
    """An actor, numbered in the grid: a lane of a warp as its thread, anything else as what it is; and its block."""
    cta, inside = divmod(number, launch.actors.count)
    block = f"block {by_axis(cta, launch.grid)}"
    cycle = WARP_LIMIT // launch.actors.count
    if prod(launch.grid) > cycle:
        # shadow cells have too few bits for the actors of such a grid
        block += f" (or of one {cycle:,} blocks, or a multiple of that, further on)"
    kind = launch.actors.kind(inside)
    if kind == "barrier":
        # such copies are known by the barrier they complete on, which need not lie in the block that began them
        return f"an asynchronous copy that completes on an mbarrier of {block}"
    if kind != "warp":
        return f"{_ACTORS[kind]} of {block}"
    return f"thread {by_axis(inside * WARP + lane, launch.block)} of {block}"


_ACTORS = {
    "bulk": "a bulk copy",
    "copied": "a bulk copy",
    "wgmma": "a wgmma operation",
    "tensor": "a tcgen05 operation",
    "loaded": "a load of tensor memory",
    "stored": "a store to tensor memory",
}


def some_threads(batch: Any, lanes: Array) -> str:
    """Lanes as a few of their threads."""
    names = [thread_name(batch, int(lane)) for lane in lanes[:2]]
    more = f" and {len(lanes) - len(names)} more" if len(lanes) > len(names) else ""
    return ", ".join(names) + more
