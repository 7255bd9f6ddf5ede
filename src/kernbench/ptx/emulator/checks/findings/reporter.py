"""Turns observations into findings: source locations, names of threads and arrays, and folding."""

import linecache
from dataclasses import dataclass, field, replace
from math import prod

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.usual import UsualOrder
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import WARP_LIMIT
from kernbench.ptx.emulator.program.hub import BatchHub, LaunchHub
from kernbench.ptx.emulator.program.locations import is_library
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.names.demangling import title
from kernbench.result.finding import FAULT, FORMAL, Finding, FindingLog, Other, SourceLocation

# maximal PTX lines of one source line in a finding
_LINES_NAMED = 4
# maximal source lines of inlined functions and calls in a finding
_FRAMES_NAMED = 16


@dataclass(eq=False)
class _Reported:
    """A finding as first reported, with all instructions of its source line that it was found at."""

    kind: str
    site: Site
    message: str
    hint: str
    others: tuple[Other, ...]
    # other source lines that led there: of inlined functions, and of calls
    frames: tuple[Other, ...]
    # the location to show, and what distinguishes it from others there
    location: SourceLocation
    subject: tuple[object, ...]
    severity: str = FAULT
    # the widest scope of the pairs so far, whose hint is shown
    reach: int = 0
    sites: dict[int, Site] = field(default_factory=dict)
    # the lines of the later and the earlier access of all pairs with one cause
    pairs: dict[tuple[SourceLocation, SourceLocation], None] = field(default_factory=dict)

    def lines(self) -> str:
        """The PTX lines, abbreviated."""
        lines = sorted(self.sites)
        more = f" and {len(lines) - _LINES_NAMED} more" if len(lines) > _LINES_NAMED else ""
        return f"PTX line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:_LINES_NAMED]))}{more}"

    def further(self) -> str:
        """The other pairs, abbreviated."""
        pairs = list(self.pairs)[1:]
        if not pairs:
            return ""
        named = ", ".join(f"line {later.line} after line {earlier.line}" for later, earlier in pairs[:_LINES_NAMED])
        more = f" and {len(pairs) - _LINES_NAMED} more" if len(pairs) > _LINES_NAMED else ""
        count = f"{len(pairs)} more pairs of lines meet" if len(pairs) > 1 else "another pair of lines meets"
        return f"; {count} the same way there: {named}{more}"

    def further_locations(self) -> tuple[Other, ...]:
        """Lines of the first pairs that this finding does not show yet."""
        named = [self.location, *(other.where for other in self.others)]
        locations = dict.fromkeys(location for pair in list(self.pairs)[1 : 1 + _LINES_NAMED] for location in pair)
        return tuple(Other("the same way", location) for location in locations if location not in named)


class Reporter:
    """Collects the findings of one launch."""

    def __init__(self, program: Program):
        self.program = program
        self.log = FindingLog()
        # the meter of the running launch
        self.meter: Meter | None = None
        self._reports: dict[tuple[object, ...], _Reported] = {}
        # sites of copies that are already reported as not awaited, and of reads of their targets
        self.unwaited: set[int] = set()
        # the first finding of all that share an access
        self._causes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.usual = UsualOrder(program)
        self.file = f"<ptx {title(program.kernel.name)}>"
        source = program.kernel.module.source
        if source:
            linecache.cache[self.file] = (len(source), None, program.source_lines, self.file)

    def location(self, site: Site) -> SourceLocation:
        """The source line a site was compiled from; its PTX line if unknown."""
        if site.source_line and site.source_file:
            return SourceLocation(site.source_file, site.source_line, title(site.function))
        return self.ptx(site)

    def ptx(self, site: Site) -> SourceLocation:
        """The PTX line of a site."""
        return SourceLocation(self.file, site.line, title(site.function))

    def _beside(self, reported: _Reported) -> tuple[Other, ...]:
        """For a source line: the lines that led there, and its PTX lines."""
        lines = sorted(reported.sites)[:_LINES_NAMED]
        return (*reported.frames, *(Other("in PTX", self.ptx(reported.sites[line])) for line in lines))

    def _frames(self, site: Site) -> tuple[SourceLocation, tuple[Other, ...]]:
        """The source line to show for what happens now, and the lines that led there, the innermost first.

        If the function is a library's and was called, not inlined, the caller's line is shown.
        """
        shown = self.location(site)
        lines = self._inlined(site) or [Other("in the called function", shown)]
        for caller in self._callers(site):
            location = self.location(caller)
            lines.append(Other("called from", location))
            if is_library(shown.file) and not is_library(location.file):
                shown = location
                lines[0] = Other("in the called function", lines[0].where)
        return shown, tuple(line for line in lines if line.where != shown)[:_FRAMES_NAMED]

    def _inlined(self, site: Site) -> list[Other]:
        """The source lines of a site's inlined functions, the innermost first."""
        lines = [
            Other("inlined from", SourceLocation(*frame, title(site.function))) for frame in site.frames if frame[0]
        ]
        if len(lines) > 1:
            lines[0] = Other("in the inlined function", lines[0].where)
        return lines

    def other(self, role: str, site: Site) -> tuple[Other, ...]:
        """Another instruction of a finding: its source line, and the lines of inlined functions that led there."""
        shown, short = self.location(site), role.partition(", ")[0]
        lines = [line for line in self._inlined(site) if line.where != shown][:_FRAMES_NAMED]
        return Other(role, shown), *(replace(line, role=f"{short}, {line.role}") for line in lines)

    def _callers(self, site: Site) -> list[Site]:
        """The call sites of the running fragment, the innermost first, if it is in the function of `site`."""
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
        """Add a finding at a site; `about` distinguishes findings on one line.

        For a pair of accesses, `cause` is the earlier one: pairs that share one of their lines, in the same `array` and
        the same part, are one finding, since one missing barrier or one extra store causes many pairs. Pairs of one
        `habit` are one finding per array, whatever their lines. `formal` says why the finding changes no result.

        Instructions of one source line, as of an unrolled loop, fold if they are alike and meant for one `array`.
        Without source lines each PTX line has findings of its own, by `register`.
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
            # synchronisation that orders accesses of two blocks also orders those of one block, but not vice versa
            reported.reach, reported.hint = reach, hint
        if location == reported.location:
            reported.sites.setdefault(site.line, site)
        if cause is not None:
            reported.pairs.setdefault((location, self.location(cause)))
        self.log.add(self._finding(reported, count), reported.subject, restated=True)

    def _group(self, key: tuple[object, ...], cause: SourceLocation, array: str, habit: str) -> tuple[object, ...]:
        """The key of the first finding that shares the later or the earlier access, or the habit."""
        kind, location, _ = key
        accesses = [(kind, "earlier", cause, array), (kind, "later", location, array)]
        accesses += [(kind, "habit", habit, array)] if habit else []
        known = next((self._causes[access] for access in accesses if access in self._causes), key)
        for access in accesses:
            self._causes.setdefault(access, known)
        return known

    def _finding(self, reported: _Reported, count: int) -> Finding:
        """The finding as known so far."""
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
        """Add a finding about the whole launch; `formal` says why it changes no result."""
        where = None if site is None else self.location(site)
        message += f"; {formal}" if formal else ""
        severity = FORMAL if formal else FAULT
        self.log.add(Finding(kind, message, where, others, hint, severity=severity), formal or None)


def by_axis(number: int, extent: tuple[int, int, int]) -> tuple[int, int, int]:
    """A number as coordinates, x fastest."""
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def thread_name(batch: BatchHub, lane: int) -> str:
    """The thread and block of a lane of a batch."""
    thread = int(batch.thread[lane])
    cta = int(batch.numbers[(lane // WARP) % batch.ctas])
    return f"thread {by_axis(thread, batch.launch.block)} of block {by_axis(cta, batch.launch.grid)}"


def block_name(batch: BatchHub, cta: int) -> str:
    """The coordinates of a CTA in the grid."""
    return f"block {by_axis(int(batch.numbers[cta]), batch.launch.grid)}"


def actor_name(launch: LaunchHub, number: int, lane: int) -> str:
    """The name of an actor by its number in the grid: a warp's lane as a thread, others by kind; with the block."""
    cta, inside = divmod(number, launch.actors.count)
    block = f"block {by_axis(cta, launch.grid)}"
    cycle = WARP_LIMIT // launch.actors.count
    if prod(launch.grid) > cycle:
        # shadow cells have too few bits for all actors of such a grid
        block += f" (or of one {cycle:,} blocks, or a multiple of that, further on)"
    kind = launch.actors.kind(inside)
    if kind == "barrier":
        # the actor is the barrier on which the copy completes, which may be in another block than the copy's
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
    """The first of some lanes' threads, and how many more."""
    names = [thread_name(batch, int(lane)) for lane in lanes[:2]]
    more = f" and {len(lanes) - len(names)} more" if len(lanes) > len(names) else ""
    return ", ".join(names) + more


def doing(batch: BatchHub, lanes: Array, one: str, several: str) -> str:
    """The first of some lanes' threads, and the verb phrase `one` or `several`."""
    return f"{some_threads(batch, lanes)} {one if len(lanes) == 1 else several}"
