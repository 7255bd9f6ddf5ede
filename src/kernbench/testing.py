"""Assertions on runs, for people's own tests; with pytest the plugin brings the fixtures."""

import difflib
from pathlib import Path
from typing import Any

from kernbench.result.run import Run


def assert_right(run: Run) -> None:
    """The golden was asked, and every output agrees with it."""
    __tracebackhide__ = True
    if run.right is None:
        raise AssertionError(f"the golden was not asked: the run {run.status}" + _report(run))
    if not run.right:
        raise AssertionError("the result is wrong" + _report(run))


def assert_safe(run: Run, *, allow: tuple[str, ...] = (), strict: bool = False) -> None:
    """The run was checked and has no finding, but for kinds in `allow`; where `strict`, no formal one either."""
    __tracebackhide__ = True
    if run.safe is None:
        raise AssertionError("the run was not checked: run it with checks" + _report(run))
    found = [*run.findings, *(run.formal if strict else ())]
    kinds = [finding.kind for finding in found if finding.kind not in allow]
    if kinds or (not run.safe and not run.findings):
        raise AssertionError(f"not safe: {', '.join(dict.fromkeys(kinds)) or run.status}" + _report(run))


def assert_faster(run: Run, than: Run | int) -> None:
    """The run's time is below another's, or below a number of picoseconds."""
    __tracebackhide__ = True
    limit = than.metrics.get("time_ps") if isinstance(than, Run) else than
    took = run.metrics.get("time_ps")
    if took is None or limit is None:
        raise AssertionError(
            "a run has no time: run it with timed=True; only right and safe runs get one" + _report(run)
        )
    if not took < limit:
        raise AssertionError(f"{took:,} ps is not below {limit:,} ps")


def assert_ptx(kernel: Any, file: Path, update: bool = False) -> None:
    """The PTX of a kernel or module (or text) is what `file` holds; with `update` the file is written instead."""
    __tracebackhide__ = True
    text = kernel if isinstance(kernel, str) else kernel.emit()
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    if not file.is_file():
        raise AssertionError(f"{file} is not there: run pytest with --update-ptx once, look at it, and commit it")
    kept = file.read_text(encoding="utf-8")
    if kept != text:
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), str(file), "emitted now", lineterm="", n=2)
        raise AssertionError("the PTX changed; pytest --update-ptx accepts it\n" + "\n".join(list(lines)[:80]))


def _report(run: Run) -> str:
    # the report draws tables: imported only by a test that fails
    from kernbench.report import run_text
    from kernbench.report.text.plain import plain_text

    return "\n" + plain_text(run_text(str(run.origin.get("bench", "")), run))
