"""The text of the page: style, scripts and data in one document with a content security policy that allows nothing
else.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

import numpy as np

from kernbench.report.page.folding import small_enough
from kernbench.report.text.findings import kinds_text
from kernbench.report.time.causes import explained
from kernbench.report.time.explanation import distance, duration, untimed
from kernbench.report.time.kernels import longest_kernels
from kernbench.result.finding import KINDS
from kernbench.result.launches import bound_of, formal_by_kernel
from kernbench.result.run import Run

MOST_MESSAGES = 200_000
# in the order of their dependences
SCRIPTS = (
    "dom",
    "format",
    "data",
    "painting",
    "spans",
    "timeline",
    "overview",
    "verdict",
    "findings",
    "limits",
    "charts",
    "source",
    "lines",
    "hot",
    "grid",
    "tasks",
    "pipeline",
    "counts",
    "errormap",
    "compare",
    "main",
)
# columns of the table of runs; narrow screens omit the wide ones, and only programs have a share of their time
_SHARE = "of the program"
_COLUMNS = (
    ("run", ""),
    ("right", ""),
    ("safe", ""),
    ("time", "n"),
    (_SHARE, "n"),
    ("distance", "n wide"),
    ("limited by", "wide"),
    ("findings", ""),
)
_WORDS = {True: ("yes", "good"), False: ("NO", "bad"), None: ("not asked", "quiet")}


def page_html(title: str, runs: Sequence[tuple[str, Run]], compare: Sequence[Mapping[str, object]] = ()) -> str:
    """The document: `runs` with their names as tabs, after the differences from `report.compare`."""
    # its licence must accompany it
    library, own = f"/*\n{_asset('uplot/LICENSE')}*/\n{_asset('uplot/uPlot.iife.min.js')}", _script()
    style = _asset("uplot/uPlot.min.css") + _asset("page.css")
    data = {
        "runs": [_run_data(name, run) for name, run in runs],
        "kinds": {name: kind.meaning for name, kind in KINDS.items()},
        "compare": list(compare),
        "first": 0 if compare else _first([run for _, run in runs]),
    }
    return _DOCUMENT.format(
        title=_text(title),
        policy=_policy([library, own], style),
        style=style,
        subtitle=_text(_subtitle(runs)),
        index=_index(runs, first=1 if compare else 0),
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        library=library,
        own=own,
    )


def _first(runs: Sequence[Run]) -> int:
    """The run that is open first: one that is wrong or unsafe, or the first."""
    return next((number for number, run in enumerate(runs) if run.right is False or run.safe is False), 0)


_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<div><h1>{title}</h1><div class="quiet">{subtitle}</div></div>
<button type="button" id="theme" class="theme">dark</button>
</header>
{index}
<main id="runs"></main>
<noscript><p>The timeline and pictures are drawn by the script in this page; nothing is fetched.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{own}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text("utf-8")


def _script() -> str:
    """The page's own scripts in a scope of their own."""
    return '(() => {\n"use strict";\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "})();\n"


def _policy(scripts: Sequence[str], style: str) -> str:
    """Allow only these scripts and this style; nothing is fetched, whatever the data holds."""
    allowed = " ".join(_digest(script) for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _run_data(name: str, run: Run) -> dict[str, object]:
    views = {key: view for key, view in run.views.items() if key != "messages" or _fits(view)}
    data = {**replace(run, views=views, timeline=None).to_dict(), "title": name}
    notes = [{"kernel": kernel, "findings": [f.to_dict() for f in found]} for kernel, found in formal_by_kernel(run)]
    data |= {"explained": explained(run), "untimed": untimed(run), "formal_notes": notes}
    if run.timeline is None:
        return data
    return {**data, "sources": run.sources(), "timeline": small_enough(run.timeline)}


def _fits(messages: object) -> bool:
    """Whether a browser can handle so many messages; without them a page shows no waves."""
    links = messages.get("link") if isinstance(messages, Mapping) else None
    if isinstance(links, Mapping):
        count = links.get("count")
        return isinstance(count, int) and count <= MOST_MESSAGES
    return isinstance(links, np.ndarray) and links.size <= MOST_MESSAGES


def _text(value: object) -> str:
    """Text escaped for HTML."""
    return escape(str(value).encode("utf-8", "replace").decode())


def _subtitle(runs: Sequence[tuple[str, Run]]) -> str:
    """The common part of the runs' origins."""
    origins = [run.origin for _, run in runs]
    shared = []
    for key in ("target", "kernel", "machine", "schedule", "seed"):
        values = {str(origin[key]) for origin in origins if key in origin}
        if len(values) == 1 and all(key in origin for origin in origins):
            shared.append(f"{key} {values.pop()}")
    versions = [origin.get("versions") for origin in origins]
    own = {str(held["kernbench"]) for held in versions if isinstance(held, Mapping) and "kernbench" in held}
    return ", ".join([*shared, *(f"kernbench {version}" for version in sorted(own))])


def _index(runs: Sequence[tuple[str, Run]], first: int) -> str:
    """All runs in a table; there is none for one run."""
    if len(runs) < 2:
        return ""
    far = distance(run for _, run in runs)
    shares = {id(run): share for _, run, share in longest_kernels(runs)}
    columns = [one for one in _COLUMNS if shares or one[0] != _SHARE]
    named = ((far[0] if name == "distance" else name, style) for name, style in columns)
    head = "".join(f'<th scope="col" class="{style}">{name}</th>' for name, style in named)
    rows = "\n".join(
        _index_row(number, name, run, far, _share(run, shares)) for number, (name, run) in enumerate(runs, first)
    )
    table = f'<table class="index"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _share(run: Run, shares: Mapping[int, float]) -> str:
    """The cell with a kernel's share of the time of a program; none for runs of anything else."""
    if not shares:
        return ""
    return f'<td class="n">{100 * shares[id(run)]:.1f} %</td>' if id(run) in shares else '<td class="n"></td>'


def _index_row(number: int, name: str, run: Run, far: tuple[str, str, str], share: str) -> str:
    metrics = run.metrics
    ps = metrics["gpu_time_ns"] * 1000 if "gpu_time_ns" in metrics else metrics.get("time_ps")
    ps = metrics["in_all"]["time_ps"] if "in_all" in metrics else ps
    ratio = metrics.get(far[1])
    answers = "".join(f'<td class="{_WORDS[a][1]}">{_WORDS[a][0]}</td>' for a in (run.right, run.safe))
    cells = [
        f'<td class="n">{"" if ps is None else _text(duration(ps))}</td>{share}',
        f'<td class="n wide">{"" if ratio is None else f"{ratio:.2f}"}</td>',
        f'<td class="wide">{_text(bound_of(metrics, far[2]))}</td>',
        f"<td>{_text(kinds_text(run))}</td>",
    ]
    link = f'<a href="#panel-{number}">{_text(name)}</a>'
    return f'<tr data-run="{number}"><td>{link}</td>{answers}{"".join(cells)}</tr>'
