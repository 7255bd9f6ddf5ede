"""A run in a notebook: the verdict as a table, findings as text, the timeline as a static picture, and the whole page,
collapsed. All but the page works without scripts, and uses the notebook's colours.
"""

from html import escape

from kernbench.report.export.picture import timeline_svg
from kernbench.report.page import page_html
from kernbench.report.text.findings import formal_text, kinds_text
from kernbench.report.text.plain import plain_text
from kernbench.report.text.verdict import run_text
from kernbench.report.time.explanation import duration
from kernbench.result.launches import bound_of
from kernbench.result.run import Run

# most characters of a page that is included in a notebook
_MOST = 1_500_000
_WORDS = {True: "yes", False: "NO", None: "not asked"}
_CELL = 'style="text-align:left;padding:2px 12px 2px 0"'


def notebook_html(run: Run) -> str:
    """The HTML that Jupyter shows for a run."""
    title = str(run.origin.get("bench") or run.origin.get("kernel") or "run")
    parts = [_table(title, run)]
    if not run.ok:
        parts.append(f"<pre>{escape(plain_text(run_text(title, run)))}</pre>")
    elif run.formal:
        parts.append(f"<pre>{escape(plain_text(formal_text(run)))}</pre>")
    if run.timeline is not None:
        parts.append(timeline_svg(run.timeline))
        parts.append(_frame(page_html(title, [(title, run)])))
    return "".join(parts)


def _table(title: str, run: Run) -> str:
    rows = {"right": _WORDS[run.right], "safe": _WORDS[run.safe], "status": str(run.status)}
    if "time_ps" in run.metrics:
        rows["time"] = duration(run.metrics["time_ps"])
        rows["bound"] = bound_of(run.metrics)
    rows["findings"] = kinds_text(run)
    rows["outputs"] = ", ".join(_outputs(run)) or "none"
    head = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in rows)
    body = "".join(f"<td {_CELL}>{escape(value)}</td>" for value in rows.values())
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr><tr>{body}</tr></table>"


def _outputs(run: Run) -> list[str]:
    """Name, shape and type of each; loaded runs have only these."""
    if run.outputs:
        return [f"{name} {list(array.shape)} {array.dtype}" for name, array in run.outputs.items()]
    kept = run.views.get("outputs", {}).items()
    return [f"{name} {one.get('shape')} {one.get('dtype')}" for name, one in kept if isinstance(one, dict)]


def _frame(page: str) -> str:
    if len(page) > _MOST:
        return "<p>The page is too large for a notebook: run.save(FILE), then kernbench report FILE.</p>"
    style = "width:100%;height:640px;border:1px solid #8884"
    frame = f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page, quote=True)}"></iframe>'
    return f"<details><summary>the whole page, with zoom and source</summary>{frame}</details>"
