"""Stops a run inside a kernel, at a line or at the first finding, and shows the state there.

A `Stopper` belongs to one run. Launches without one have no overhead. Python kernels are traced line by line while it
is active; other targets call `counts` and `keep` themselves. It keeps only data: the source location, which program,
and arrays by name, which the run shows as `views["stopped"]`.
"""

import ast
import linecache
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError, traced
from kernbench.result.finding import FAULT, Finding, SourceLocation, location_dict
from kernbench.safety.budget import OverBudgetError
from kernbench.safety.held import Show, held_in

FINDING = "finding"
_NEAREST = 3
_PYTHON = str(Path(traceback.__file__).parent) + "/"
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_TEXT = re.compile(r"(?:(?P<file>.+):)?(?P<line>\d{1,18})(?:#(?P<nth>\d{1,18}))?", re.ASCII)


class StoppedError(OverBudgetError):
    """Raised inside a program that has reached the stop location; kernels do not catch it by accident."""


@dataclass(frozen=True)
class StopAt:
    """Stop at line `line` of `file`, the `nth` time that a program reaches it; line 0 is the first finding."""

    file: str = ""
    line: int = 0
    nth: int = 1

    def __str__(self) -> str:
        if not self.line:
            return FINDING
        return (f"{self.file}:" if self.file else "") + str(self.line) + (f"#{self.nth}" if self.nth > 1 else "")

    def is_file(self, name: str) -> bool:
        """Whether a source file is the wanted one: the same path, or a path that ends with it."""
        return not self.file or name == self.file or _parts(name)[-len(_parts(self.file)) :] == _parts(self.file)


def _parts(name: str) -> tuple[str, ...]:
    return Path(name).resolve().parts if name.startswith("..") else Path(name).parts


def stop_at(text: str) -> StopAt:
    """Parse `FILE:LINE`, `FILE:LINE#N`, `LINE` or `finding`."""
    if text == FINDING:
        return StopAt()
    found = _TEXT.fullmatch(text)
    if found is None or int(found["line"]) < 1 or int(found["nth"] or 1) < 1:
        raise MisuseError(f"stop at {text!r}: FILE:LINE, FILE:LINE#N for the N-th time, or {FINDING} is wanted")
    return StopAt(found["file"] or "", int(found["line"]), int(found["nth"] or 1))


@dataclass(frozen=True)
class Stopped:
    """The state at the stop: source location, which program, why it stopped, and arrays by name with descriptions."""

    where: SourceLocation
    who: str
    why: str
    arrays: dict[str, Array]
    about: dict[str, str]

    def view(self) -> dict[str, object]:
        """As a run shows it."""
        location = location_dict(self.where)
        return {"where": location, "who": self.who, "why": self.why, "arrays": self.arrays, "about": self.about}


class Stopper:
    """Stops one run at `wanted`; `met` is the state there, None until then. `strict`: also at formal findings."""

    def __init__(self, wanted: StopAt, strict: bool = False):
        self.wanted = wanted
        self.strict = strict
        self.met: Stopped | None = None
        # lines of the wanted file that programs reached, and other files with kernel code
        self.reached: set[int] = set()
        self.elsewhere: set[str] = set()
        self._times: Counter[str] = Counter()
        self._matches: dict[str, bool] = {}
        # by file, the statement that begins at the wanted line
        self._statements: dict[str, Statement] = {}
        self._who: Callable[[], str] = lambda: ""
        self._show: Show = lambda value: None
        self._watching = False

    @property
    def at_finding(self) -> bool:
        """Whether it stops at the first finding."""
        return not self.wanted.line

    def minds(self, finding: Finding) -> bool:
        """Whether it stops at findings of this severity."""
        return self.strict or finding.severity == FAULT

    def matches(self, file: str) -> bool:
        """Whether a file is the wanted one; others are remembered for the message."""
        known = self._matches.get(file)
        if known is None:
            known = self._matches[file] = self.wanted.is_file(file)
            if not known:
                self.elsewhere.add(file)
        return known

    def counts(self, line: int, who: str) -> bool:
        """Count that a program reached a line of the wanted file; returns whether to stop now."""
        self.reached.add(line)
        if line != self.wanted.line or self.met is not None or self.at_finding:
            return False
        self._times[who] += 1
        return self._times[who] == self.wanted.nth

    def keep(self, where: SourceLocation, who: str, why: str, arrays: dict[str, Array], about: dict[str, str]) -> None:
        """Keep the state, the first time; later calls have no effect."""
        if self.met is None:
            self.met = Stopped(where, who, why, arrays, about)

    @contextmanager
    def watching(self, who: Callable[[], str], show: Show) -> Iterator[None]:
        """Trace Python kernels in this thread: `who()` names the running program, `show` gives arrays of its values."""
        if self.met is not None:
            yield
            return
        self._who, self._show, self._watching = who, show, True
        before = sys.gettrace()
        if not self.at_finding:
            sys.settrace(self._enter)
        try:
            yield
        finally:
            self._watching = False
            if not self.at_finding:
                sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, value: object) -> Any:
        """A function is called: trace its lines if it is in the wanted file."""
        file = frame.f_code.co_filename
        if is_ours(frame) or _is_library(frame) or not self.matches(file):
            return None
        if file not in self._statements:
            self._statements[file] = statement_at(file, self.wanted.line)
        return self._follower(self._statements[file], frame.f_code.co_name in _COMPREHENSIONS)

    def _follower(self, statement: "Statement", inside: bool) -> object:
        """The trace function of one call.

        A statement counts as reached once, even if Python returns to its first line from its other lines, or from a
        comprehension in it (`inside` if that is a function of its own).
        """
        wanted, before = self.wanted.line, 0

        def follow(frame: FrameType, event: str, value: object) -> object:
            nonlocal before
            if event == "line" and self._watching:
                line = frame.f_lineno
                if not inside and statement.is_entered_below(frame, before):
                    self.reached.add(line)
                    self._reach(frame, wanted)
                elif not (line == wanted and statement.end and (inside or statement.goes_on(frame, before))):
                    self._reach(frame, line)
                before = line
            return follow

        return follow

    def _reach(self, frame: FrameType, line: int) -> None:
        who = self._who()
        if self.counts(line, who):
            self._take(frame, line, who, "this line is next")
            raise StoppedError

    def found(self, finding: Finding) -> None:
        """A finding was made while a program ran: stop there, in the program's own frame."""
        if not self.at_finding or not self._watching or self.met is not None or not self.minds(finding):
            return
        why = f"{finding.kind}: {finding.message}"
        frame = _kernel_frame(sys._getframe(1))
        if frame is not None:
            self._take(frame, frame.f_lineno, self._who(), why)
            raise StoppedError
        raised = _raised_in()
        if raised is not None:
            # the program has raised an error: its frame still exists in the traceback
            self._take(*raised, self._who(), why)

    def _take(self, frame: FrameType, line: int, who: str, why: str) -> None:
        where = SourceLocation(frame.f_code.co_filename, line, frame.f_code.co_name)
        self.keep(where, who, why, *held_in(_frames(frame), self._show))

    def missed(self) -> str:
        """A message on why the location was never reached."""
        if self.at_finding:
            return "there was nothing to stop at: the run has no findings"
        if self._times:
            times = max(self._times.values())
            return f"{self.wanted}: no program reached it {self.wanted.nth} times; {times} is the most any did"
        if not self.reached:
            files = ", ".join(sorted(Path(name).name for name in self.elsewhere)) or "none"
            return f"{self.wanted}: no line of that file ran in the launch; files of kernels that did: {files}"
        near = sorted(self.reached, key=lambda line: (abs(line - self.wanted.line), line))[:_NEAREST]
        lines = ", ".join(map(str, sorted(near)))
        return f"{self.wanted} was never reached; the nearest lines that were: {lines}"


@dataclass(frozen=True)
class Statement:
    """The statement that begins at line `line`; `end` is the last line of it or of its head (0: no statement there).

    `simple` is one without a body; `comprehensions` are (line, column) of begin and end of each.
    """

    line: int
    end: int = 0
    simple: bool = False
    comprehensions: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()

    def is_entered_below(self, frame: FrameType, before: int) -> bool:
        """Whether a frame, last at line `before`, enters the statement below its first line.

        Python evaluates a value on a line of its own, and the iterable of a comprehension, before the first line.
        """
        below = self.simple and self.line < frame.f_lineno <= self.end
        return below and not self.line <= before <= self.end and frame.f_code.co_name != "<lambda>"

    def goes_on(self, frame: FrameType, before: int) -> bool:
        """Whether a frame at the first line, last at line `before`, is still in the same execution of the statement."""
        if before == self.line:
            return bool(self.comprehensions) and self._repeats(frame)
        return self.line < before <= self.end

    def _repeats(self, frame: FrameType) -> bool:
        """Whether the frame is in an iteration of a comprehension.

        Since Python 3.12 a comprehension is a loop of the enclosing function. Python returns to the line at an
        instruction of the comprehension that is not the line's first.
        """
        code, at = frame.f_code, frame.f_lasti
        # an instruction takes two bytes
        line, _, column, _ = next(islice(code.co_positions(), at // 2, None), (None, None, None, None))
        if line is None or column is None or at == min(first for first, _, of in code.co_lines() if of == self.line):
            return False
        return any(begin <= (line, column) < end for begin, end in self.comprehensions)


def statement_at(file: str, line: int) -> Statement:
    """The statement that begins at a line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return Statement(line)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno == line:
            body = getattr(node, "body", None)
            end = max(line, body[0].lineno - 1) if body else node.end_lineno or line
            return Statement(line, end, not body, tuple(_comprehensions(node)))
    return Statement(line)


def _comprehensions(statement: ast.stmt) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            yield (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is kernbench's own, except the bundled kernels."""
    module = str(frame.f_globals.get("__name__", ""))
    return "__kernbench_internal__" in frame.f_globals or (
        module.startswith("kernbench.") and not module.startswith("kernbench.benches.")
    )


def _kernel_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost kernel frame from `frame` outwards."""
    while frame is not None and (is_ours(frame) or _is_library(frame)):
        frame = frame.f_back
    return frame


def _is_library(frame: FrameType) -> bool:
    """Whether a frame belongs to an installed package or to Python itself."""
    name = frame.f_code.co_filename
    return "site-packages" in name or name.startswith((_PYTHON, "<"))


def _raised_in() -> tuple[FrameType, int] | None:
    """The innermost kernel frame of the error being handled, and its line."""
    error = sys.exc_info()[1]
    lines = [] if error is None else [one for one in traced(error) if not is_ours(one[0]) and not _is_library(one[0])]
    return lines[-1] if lines else None


def _frames(frame: FrameType | None) -> list[tuple[str, dict[str, object]]]:
    """The frame's variables, then those of the kernel functions that called it, by function."""
    found: dict[str, dict[str, object]] = defaultdict(dict)
    while frame is not None and not is_ours(frame):
        name = frame.f_code.co_name if found else ""
        for key, value in frame.f_locals.items():
            found[name].setdefault(key, value)
        found.setdefault(name, {})
        frame = frame.f_back
    return list(found.items())
