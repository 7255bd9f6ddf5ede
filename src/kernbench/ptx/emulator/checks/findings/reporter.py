"""Turning what was seen into findings: source locations, names of threads and arrays, and folding."""

import linecache
from dataclasses import dataclass, field
from math import prod

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import WARP_LIMIT
from kernbench.ptx.emulator.program.hub import BatchHub, LaunchHub
from kernbench.ptx.emulator.program.locations import is_library
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.names.demangling import title
from kernbench.result.finding import FAULT, FORMAL, Finding, FindingLog, Other, Place

# PTX lines of one source line that a finding names
_LINES_NAMED = 4
# source lines of inlined functions and of calls that a finding names
_FRAMES_NAMED = 16


@dataclass(eq=False)
class _Reported:
    """What a finding said first, and the instructions of its source line that it was met at."""

    kind: str
    site: Site
    message: str
    hint: str
    others: tuple[Other, ...]
    # the source lines that led there, but for the one that is shown: of inlined functions, and of calls
    frames: tuple[Other, ...]
    # where it is shown, and what keeps it apart from others there
    location: Place
    subject: tuple[object, ...]
    severity: str = FAULT
    # how far the two accesses are apart, of those pairs whose hint is shown
    reach: int = 0
    sites: dict[int, Site] = field(default_factory=dict)
    # the lines of the later and the earlier access of all pairs that have one cause
    pairs: dict[tuple[Place, Place], None] = field(default_factory=dict)

    def lines(self) -> str:
        """The PTX lines, shortly."""
        lines = sorted(self.sites)
        more = f" and {len(lines) - _LINES_NAMED} more" if len(lines) > _LINES_NAMED else ""
        return f"PTX line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:_LINES_NAMED]))}{more}"

    def further(self) -> str:
        """The pairs but for the first, shortly."""
        pairs = list(self.pairs)[1:]
        if not pairs:
            return ""
        named = ", ".join(f"line {later.line} after line {earlier.line}" for later, earlier in pairs[:_LINES_NAMED])
        more = f" and {len(pairs) - _LINES_NAMED} more" if len(pairs) > _LINES_NAMED else ""
        count = f"{len(pairs)} more pairs of lines meet" if len(pairs) > 1 else "another pair of lines meets"
        return f"; {count} the same way there: {named}{more}"

    def further_locations(self) -> tuple[Other, ...]:
        """Of the first pairs, the lines that this finding does not name yet."""
        named = [self.location, *(other.where for other in self.others)]
        locations = dict.fromkeys(location for pair in list(self.pairs)[1 : 1 + _LINES_NAMED] for location in pair)
        return tuple(Other("the same way", location) for location in locations if location not in named)


class Reporter:
    """Collects the findings of one launch."""

    def __init__(self, program: Program):
        self.program = program
        self.log = FindingLog()
        # what runs now, while a launch does
        self.meter: Meter | None = None
        self._reports: dict[tuple[object, ...], _Reported] = {}
        # copies that are reported already as not waited for, and instructions that read what they fill
        self.unwaited: set[int] = set()
        # the first finding of all that share an access
        self._causes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.file = f"<ptx {title(program.kernel.name)}>"
        source = program.kernel.module.source
        if source:
            linecache.cache[self.file] = (len(source), None, program.source_lines, self.file)

    def location(self, site: Site) -> Place:
        """The source line a site was compiled from; its PTX line where that is not known."""
        if site.source_line and site.source_file:
            return Place(site.source_file, site.source_line, title(site.function))
        return self.ptx(site)

    def ptx(self, site: Site) -> Place:
        """The PTX line of a site."""
        return Place(self.file, site.line, title(site.function))

    def _beside(self, reported: _Reported) -> tuple[Other, ...]:
        """Of a source line: the lines that led there, and its PTX lines."""
        lines = sorted(reported.sites)[:_LINES_NAMED]
        return (*reported.frames, *(Other("in PTX", self.ptx(reported.sites[line])) for line in lines))

    def _frames(self, site: Site) -> tuple[Place, tuple[Other, ...]]:
        """The source line to show for what happens now, and those that led there, the innermost first.

        Where the function is a library's and was called, not inlined, the line to show is that of the caller.
        """
        shown = self.location(site)
        lines = [Other("inlined from", Place(*frame, title(site.function))) for frame in site.frames if frame[0]]
        if len(lines) > 1:
            lines[0] = Other("in the inlined function", lines[0].where)
        lines = lines or [Other("in the called function", shown)]
        for caller in self._callers(site):
            location = self.location(caller)
            lines.append(Other("called from", location))
            if is_library(shown.file) and not is_library(location.file):
                shown = location
                lines[0] = Other("in the called function", lines[0].where)
        return shown, tuple(line for line in lines if line.where != shown)[:_FRAMES_NAMED]

    def _callers(self, site: Site) -> list[Site]:
        """The calls that those who run now are in, the innermost first, where it is they who are at a site."""
        calls = () if self.meter is None else self.meter.calls[-_FRAMES_NAMED:]
        if not calls or calls[-1].callee != site.function:
            return []
        return [self.program.blocks[call.following - 1].sites[-1] for call in reversed(calls)]

    def add(
        self,
        kind: str,
        site: Site,
        message: str,
        hint: str,
        count: int = 1,
        others: tuple[Other, ...] = (),
        about: object = None,
        register: str = "",
        array: str = "",
        cause: Site | None = None,
        formal: str = "",
        habit: str = "",
        reach: int = 0,
    ) -> None:
        """One finding at a site; `about` keeps two apart that share a line.

        Where two accesses do not go together, `cause` is the earlier one: pairs that share one of their lines, in the
        same `array` and the same part, are one finding, as one missing barrier or one store too many makes many.
        Pairs of one `habit` are one finding in each array, whatever their lines. What is `formal` says why it changes
        no result.

        Instructions of one source line, as of an unrolled loop, fold where they are alike and meant for one `array`.
        Where the source is not known each PTX line has findings of its own, by `register`.
        """
        location, frames = self._frames(site)
        about = (about, "formal") if formal else about
        message += f"; {formal}" if formal else ""
        subject: tuple[object, ...] = (about, register, site.line)
        if location != self.ptx(site):
            subject = (about, array, site.opcode)
        key: tuple[object, ...] = (kind, location, subject)
        array += " formally" if formal else ""
        if cause is not None:
            key = self._group(key, self.location(cause), array, habit)
        reported = self._reports.setdefault(
            key, _Reported(kind, site, message, hint, others, frames, location, subject, FORMAL if formal else FAULT)
        )
        if reach > reported.reach:
            # what orders accesses of two blocks orders those of one, and not the other way round
            reported.reach, reported.hint = reach, hint
        if location == reported.location:
            reported.sites.setdefault(site.line, site)
        if cause is not None:
            reported.pairs.setdefault((location, self.location(cause)))
        self.log.add(self._finding(reported, count), reported.subject, restated=True)

    def _group(self, key: tuple[object, ...], cause: Place, array: str, habit: str) -> tuple[object, ...]:
        """The key of the first finding of those that share the later or the earlier access, or a habit, with this."""
        kind, location, _ = key
        accesses = [(kind, "earlier", cause, array), (kind, "later", location, array)]
        accesses += [(kind, "habit", habit, array)] if habit else []
        known = next((self._causes[access] for access in accesses if access in self._causes), key)
        for access in accesses:
            self._causes.setdefault(access, known)
        return known

    def _finding(self, reported: _Reported, count: int) -> Finding:
        """What is known by now."""
        text = f"`{reported.site.text}`" if reported.site.text else ""
        others = reported.others + reported.further_locations()
        if reported.location != self.ptx(reported.site):
            text += f" ({reported.lines()})"
            others += self._beside(reported)
        else:
            others += reported.frames
        message = reported.message + reported.further()
        message = f"{text}: {message}" if text else message
        return Finding(
            reported.kind, message, reported.location, others, reported.hint, count, severity=reported.severity
        )

    def general(
        self,
        kind: str,
        message: str,
        hint: str,
        others: tuple[Other, ...] = (),
        site: Site | None = None,
        formal: str = "",
    ) -> None:
        """One finding of the whole launch; what is `formal` says why it changes no result."""
        where = None if site is None else self.location(site)
        message += f"; {formal}" if formal else ""
        severity = FORMAL if formal else FAULT
        self.log.add(Finding(kind, message, where, others, hint, severity=severity), formal or None)


def by_axis(number: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    """A number as coordinates, x fastest."""
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def thread_name(batch: BatchHub, lane: int) -> str:
    """A lane of a batch as its thread and block."""
    thread = int(batch.thread[lane])
    cta = int(batch.numbers[(lane // WARP) % batch.ctas])
    return f"thread {by_axis(thread, batch.launch.block)} of block {by_axis(cta, batch.launch.grid)}"


def block_name(batch: BatchHub, cta: int) -> str:
    """A CTA of a batch by its coordinates in the grid."""
    return f"block {by_axis(int(batch.numbers[cta]), batch.launch.grid)}"


def actor_name(launch: LaunchHub, number: int, lane: int) -> str:
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


def some_threads(batch: BatchHub, lanes: Array) -> str:
    """Lanes as a few of their threads."""
    names = [thread_name(batch, int(lane)) for lane in lanes[:2]]
    more = f" and {len(lanes) - len(names)} more" if len(lanes) > len(names) else ""
    return ", ".join(names) + more


def doing(batch: BatchHub, lanes: Array, one: str, several: str) -> str:
    """Lanes as a few of their threads, and what they do: `one` does it, or `several` do."""
    return f"{some_threads(batch, lanes)} {one if len(lanes) == 1 else several}"
