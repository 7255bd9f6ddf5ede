"""The page in a real browser: its parts are there, it zooms by keys and hands, and it complains of nothing.

Pictures for a human look are left in out/page.
"""

import re
import struct
from dataclasses import replace

import pytest
from tests.report.conftest import PICTURES, PROGRAM, sections, view, written
from tests.report.samples import HOSTILE, sample, timeline, unsafe

from kernbench.bench import find, run_bench
from kernbench.report import difference, page_html

SMALL = {"context": 48, "d_head": 16, "h_q": 4, "h_kv": 2, "lengths": (), "n_ranks": 4}
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt install chromium")


@pytest.fixture(scope="module")
def milestone(tmp_path_factory):
    """All four panels as one page."""
    bench = find("milestone_gqa_llama70b")
    runs = [(panel, run_bench(bench, panel, SMALL, timed=True)) for panel in bench.panels]
    return written(tmp_path_factory.mktemp("page"), page_html(bench.name, runs))


def colours(browser):
    """How many colours the timeline's picture has, right of its labels."""
    return browser.ask("""(() => {
      const { canvas, gutter } = kernbench.timelines.at(-1);
      const held = canvas.getContext("2d").getImageData(gutter, 24, canvas.width - gutter, canvas.height - 24).data;
      return new Set(new Uint32Array(held.buffer)).size;
    })()""")


def test_a_mesh_run_has_its_parts(quiet, milestone):
    quiet.show(milestone)
    parts = ["Verdict", "Limits: where the time goes", "Timeline", "Engines", "Counters over time", "Critical path"]
    parts += ["Mesh", "What the kernel did", "Error against the golden", "How it was run"]
    assert sections(quiet) == parts
    assert quiet.ask("[...document.querySelectorAll('.verdict .answer')].map(a => a.textContent)")[:2] == ["yes", "yes"]
    assert colours(quiet) > 4
    assert quiet.ask("document.querySelectorAll('.source .row.hot').length") > 3
    quiet.picture(PICTURES / "mesh.png")


def test_lines_and_advice_have_their_parts(quiet, tmp_path):
    advice = {"kind": "bank conflict", "line": 7, "message": "16 passes", "cost_ps": 2_000_000, "sure": "sure"}
    advice |= {"hint": "pad rows", "source": {"file": "/home/kernel.py", "line": 3}}
    stalls = {"line": 7, "text": "ld.shared.f32", "issued": 12, "share": 0.5, "waits": {"shared memory": 0.4}}
    stalls |= {"bytes": 4096, "coalescing": None, "bank_efficiency": 0.0625}
    run = sample()
    metrics = {**run.metrics, "advice": [advice], "changes": [{"what": "one more CTA", "needs": "less", "saves": 0.1}]}
    quiet.show(written(tmp_path, page_html("k", [("k", replace(run, metrics=metrics, views={"stalls": [stalls]}))])))
    assert {"Advice", "Lines: what warps waited for"} <= set(sections(quiet))
    cells = quiet.ask("[...document.querySelectorAll('section[aria-label=Advice] td')].map(cell => cell.innerText)")
    assert cells[:3] == ["bank conflict", "kernel.py:3, text 7", "2 us"]
    assert cells[-3:] == ["one more CTA", "10.0 %", "less"]
    lines = quiet.ask("[...document.querySelectorAll('section[aria-label^=Lines] td')].map(cell => cell.innerText)")
    assert lines[3:] == ["12", "shared memory 40.0 %", "4.1 kB", "", "6 %"]


def test_a_line_of_the_source_opens_to_what_its_warps_waited_for(quiet, tmp_path):
    lines = ["def kernel():", "    v = load(x)", "    s = sum(v)", "    store(y, s)"]
    (tmp_path / "kernel.py").write_text("\n".join(lines))
    hot = {
        "source": {"file": str(tmp_path / "kernel.py"), "line": 3},
        "text": "s = sum(v)",
        "issued": 1200,
        "share": 0.75,
    }
    hot |= {"waits": {"shared memory": 0.5, "barriers": 0.25}, "bytes": 0, "shared_bytes": 4096, "coalescing": None}
    hot |= {"bank_efficiency": 0.25, "lines": [7], "time_ps": 3_000_000}
    hot |= {"inner": [{"file": "/env/standard.py", "line": 314, "share": 0.6}]}
    gone = {"source": {"file": "/gone.py", "line": 9}, "text": "return x", "share": 0.25, "waits": {HOSTILE: 0.25}}
    stalls = {"line": 7, "text": "ld.shared.f32", "share": 0.5, "waits": {"shared memory": 0.5}}
    run = replace(sample(), timeline=None, views={"by_source": [gone, hot], "stalls": [stalls]})
    quiet.show(written(tmp_path, page_html("k", [("k", run)])))
    part = "document.querySelector('section[aria-label^=Source]')"
    # the dearest file first; a file that is not there any more has the lines that were kept
    files = quiet.ask(f"[...{part}.querySelectorAll('.filename')].map(one => one.innerText.split('/').pop())")
    assert files == ["kernel.py: 75.0 % of the warp cycles", "gone.py: 25.0 % of the warp cycles"]
    rows = quiet.ask(f"[...{part}.querySelectorAll('.row')].map(row => [...row.children].map(cell => cell.innerText))")
    assert [row[2:] for row in rows] == [*([str(n), text] for n, text in enumerate(lines, 1)), ["9", "return x"]]
    assert [row[0] for row in rows] == ["", "", "75.0 %", "", "25.0 %"]
    assert quiet.ask(f"{part}.querySelectorAll('summary .heat i').length") == 3
    quiet.ask(f"{part}.querySelector('details').open = true")
    assert quiet.ask(f"{part}.querySelector('.detail').innerText").splitlines() == [
        "warps: shared memory 50.0 %, barriers 25.0 %", "issued: 1,200 instructions",
        "shared memory: 4.1 kB, 25 % of its passes over the banks are needed", "inlined there: standard.py:314 60.0 %",
        "part of the time: 3 us", "text 7  50.0 %  ld.shared.f32",
    ]  # fmt: skip
    assert quiet.ask("window.hacked") is None


def test_every_panel_has_its_tab(quiet, milestone):
    quiet.show(milestone)
    assert quiet.ask("[...document.querySelectorAll('[role=tab]')].map(t => t.textContent)") == [
        "single_user_prefill",
        "single_user_decode",
        "multi_user_prefill",
        "multi_user_decode",
    ]
    quiet.ask("document.querySelector('[role=tab]').focus()")
    quiet.press("ArrowRight")
    quiet.ask("kernbench.select(1)")
    assert quiet.ask("document.activeElement.textContent") == "single_user_decode"
    assert quiet.ask("document.querySelector('[aria-current=true] a').textContent") == "single_user_decode"
    assert "Mesh" in sections(quiet)


def test_keys_zoom_and_pan(quiet, milestone):
    quiet.show(milestone)
    start, end, total = view(quiet)
    assert (start, end) == (0, total)
    quiet.ask("kernbench.timelines[0].box.focus()")
    quiet.press("+")
    quiet.press("+")
    start, end, _ = view(quiet)
    assert end - start == pytest.approx(total / 4)
    quiet.press("ArrowRight")
    assert view(quiet)[0] == pytest.approx(start + 0.2 * total / 4)
    quiet.press("ArrowLeft")
    quiet.press("-")
    assert view(quiet)[1] - view(quiet)[0] == pytest.approx(total / 2)
    quiet.press("0")
    assert view(quiet)[:2] == [0, total]
    quiet.press("n")
    assert "of the critical path; waited last for: " in quiet.ask("kernbench.timelines[0].detail.textContent")
    assert view(quiet)[1] - view(quiet)[0] < total


def test_the_keyboard_reaches_everything_that_can_be_used(quiet, milestone):
    quiet.show(milestone)
    seen = []
    for _ in range(30):
        quiet.press("Tab")
        name = "(a => a.getAttribute('aria-label') || a.textContent || a.tagName)(document.activeElement)"
        seen.append(quiet.ask(name))
    for wanted in ("use dark colours", "single_user_prefill", "zoom in", "whole run", "timeline"):
        assert wanted in seen, seen
    assert quiet.ask(
        "[...document.querySelectorAll('button')].every(b => b.textContent || b.getAttribute('aria-label'))"
    )
    ids = "[...document.querySelectorAll('[id]')].map(e => e.id)"
    assert quiet.ask(f"new Set({ids}).size === {ids}.length")


def test_the_mouse_zooms_pans_and_chooses(quiet, milestone):
    quiet.show(milestone)
    box = quiet.ask("""(() => {
      const { canvas, box, gutter } = kernbench.timelines[0];
      box.scrollIntoView();
      const at = canvas.getBoundingClientRect();
      return [at.left + gutter, at.top, at.width - gutter];
    })()""")
    x, y = box[0] + box[2] / 2, box[1] + 22 + 2.5 * 17
    total = view(quiet)[2]
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -400, "modifiers": 2}
    quiet("Input.dispatchMouseEvent", **wheel)
    start, end, _ = view(quiet)
    assert end - start < 0.5 * total
    assert start < total / 2 < end
    for kind, at in (("mousePressed", x), ("mouseMoved", x - 100), ("mouseReleased", x - 100)):
        quiet("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)
    assert view(quiet)[0] > start
    quiet.ask("kernbench.timelines[0].setView(0, kernbench.timelines[0].line.total)")
    quiet.frame()
    chosen = quiet.ask("""(() => {
      const t = kernbench.timelines[0], lane = t.rows.find((row) => row.lane).lane;
      return [t.x((t.line.start[lane.first] + t.line.finish[lane.first]) / 2), t.line.names[t.line.name[lane.first]]];
    })()""")
    x, y = box[0] - quiet.ask("kernbench.timelines[0].gutter") + chosen[0], box[1] + 22 + 1.5 * 17
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        quiet("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert " on cube 0 PE 0, " in quiet.ask("kernbench.timelines[0].status.textContent")
    told = quiet.ask("kernbench.timelines[0].detail.innerText")
    assert told.startswith(f"{chosen[1]} on cube 0 PE 0, ")
    # its line, and those around it
    assert quiet.ask("kernbench.timelines[0].detail.querySelectorAll('.snippet .here').length") == 1


def test_fingers_pan_and_pinch(quiet, milestone):
    quiet.show(milestone, width=390, height=844, mobile=True)
    quiet("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    x, y, total = quiet.ask("""(() => {
      const { box, canvas, gutter, line } = kernbench.timelines[0];
      box.scrollIntoView();
      const at = canvas.getBoundingClientRect();
      return [at.left + gutter, at.top + 60, line.total];
    })()""")

    def touch(kind, *places):
        points = [{"x": x + place, "y": y + 20 * n, "id": n} for n, place in enumerate(places)]
        quiet("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    touch("touchStart", 100)
    touch("touchStart", 100, 140)
    for by in range(10, 60, 10):
        touch("touchMove", 100 - by, 140 + by)
    touch("touchEnd")
    start, end, _ = view(quiet)
    assert 0 < start < end < total
    assert end - start < 0.5 * total
    touch("touchStart", 150)
    for by in range(10, 80, 10):
        touch("touchMove", 150 - by)
    touch("touchEnd")
    assert view(quiet)[0] > start
    assert view(quiet)[1] - view(quiet)[0] == pytest.approx(end - start)
    quiet("Emulation.setTouchEmulationEnabled", enabled=False)


def test_a_line_shows_its_spans(quiet, milestone):
    quiet.show(milestone)
    quiet.ask("document.querySelector('.source .row.hot button').click()")
    quiet.frame()
    assert quiet.ask("kernbench.timelines[0].site") >= 0
    assert quiet.ask("document.querySelectorAll('.source [aria-current=true]').length") == 1


def test_waves_step_through_the_mesh(quiet, milestone):
    quiet.show(milestone)
    waves = quiet.ask("kernbench.views[0].waves.map(w => [w.from, w.to, w.messages.length])")
    # four ranks in a line: a block travels three hops at least
    assert len(waves) >= 3
    assert all(0 <= start < end for start, end, _ in waves)
    sends = "kernbench.runs[0].metrics.commands_by_engine.ipcq / 2"
    assert sum(n for *_, n in waves) == quiet.ask(sends)
    quiet.ask("document.querySelector('[aria-label=\"next wave\"]').click()")
    assert quiet.ask("document.querySelector('.mesh .note').textContent").startswith("wave 1 of")


def test_every_view_and_every_finding(quiet, tmp_path):
    quiet.show(written(tmp_path, page_html(HOSTILE, [(HOSTILE, sample(name=HOSTILE)), ("bad", unsafe())])))
    assert {"Mesh", "Task graph", "Barrier pipeline", "Printed by the kernel"} <= set(sections(quiet))
    assert quiet.ask("document.querySelectorAll('.stage.stuck').length") == 1
    assert quiet.ask("document.querySelectorAll('.tasks svg g').length") == 2
    quiet.ask("kernbench.select(1)")
    assert sections(quiet)[:2] == ["Verdict", "Findings"]
    shown = quiet.ask("document.querySelector('#panel-1').innerText")
    for words in ("race", "ranks 0-2, 3 times", "the other write: ", "next: wait first", "its result is wrong"):
        assert words in shown
    assert quiet.ask("document.querySelectorAll('#panel-1 .snippet .here').length") == 2
    assert HOSTILE in quiet.ask("document.body.textContent")
    assert quiet.ask("window.hacked") is None
    quiet.picture(PICTURES / "findings.png", whole=False)


def test_many_findings_are_told_by_kind(quiet, tmp_path):
    (race, _) = unsafe().findings
    found = [replace(race, message=f"writes {n}") for n in range(120)] + [replace(race, kind="descriptor")]
    run = replace(unsafe(), findings=found)
    quiet.show(written(tmp_path, page_html("t", [("r", run)])))
    section = "document.querySelector('section[aria-label=Findings]')"
    assert quiet.ask(f"{section}.querySelector('table').innerText").split()[-8:] == [
        *("race", "120", "360", "tests/report/samples.py:5"),
        *("descriptor", "1", "3", "tests/report/samples.py:5"),
    ]
    # the first ones of a kind are open, the others one line each, which opens
    assert quiet.ask(f"{section}.querySelectorAll(':scope > .finding').length") == 3
    assert quiet.ask(f"{section}.querySelectorAll('details.folded:not([open])').length") == 118
    quiet.ask(f"{section}.querySelector('details.folded summary').click()")
    assert "writes 2" in quiet.ask(f"{section}.querySelector('details[open] .message').innerText")
    quiet.ask(f"{section}.querySelectorAll('td button')[1].click()")
    assert quiet.ask("document.activeElement.textContent") == "descriptor: 1 finding"


def test_formal_findings_are_shown_apart_and_do_not_count(quiet, tmp_path):
    formal = replace(unsafe().findings[0], message="a copy is under way; it is kept", severity="formal")
    quiet.show(written(tmp_path, page_html("t", [("r", replace(sample(), formal=[formal]))])))
    assert sections(quiet)[:2] == ["Verdict", "Formal findings"]
    shown = quiet.ask("document.querySelector('#panel-0').innerText")
    assert "a copy is under way; it is kept" in shown
    assert "1 formal finding not counted" in shown
    assert quiet.ask("document.querySelectorAll('.verdict .answer')[1].textContent") == "yes"


def test_acknowledged_findings_are_shown_and_do_not_count(quiet, tmp_path):
    row = {"by": "source", "reason": "the flag is checked again", "fingerprint": "1f0c22d4"}
    row["finding"] = unsafe().findings[0].to_dict()
    quiet.show(written(tmp_path, page_html("t", [("r", sample(views={"acknowledged": [row]}))])))
    assert sections(quiet)[:2] == ["Verdict", "Acknowledged findings"]
    shown = quiet.ask("document.querySelector('#panel-0').innerText")
    assert "acknowledged: the flag is checked again (source)" in shown
    assert "1 acknowledged finding not counted" in shown
    assert quiet.ask("document.querySelectorAll('.verdict .answer')[1].textContent") == "yes"


def test_an_order_is_never_a_time(quiet, tmp_path):
    run = sample(timeline=timeline(unit="order", path=False), metrics={"warp_instructions": 5}, views={})
    quiet.show(written(tmp_path, page_html("t", [("r", run)])))
    assert "Timeline (order, no time)" in sections(quiet)
    assert "Engines" not in sections(quiet)
    shown = quiet.ask("document.querySelector('#panel-0').innerText")
    assert "no time" in shown
    assert re.findall(r"\d (?:ps|ns|us|ms|s)\b", shown) == []


def test_views_that_make_no_sense_spoil_only_their_part(browser, tmp_path):
    mesh = {"package": [1, 1], "cube": [1, "x"], "pes": [[0, 0, 0, 1e308, 0, 0]], "links": []}
    tasks = [{"task": 0, "start_ps": 1, "finish_ps": 1e308, "after": 3}]
    for views in (
        {"mesh": {"pes": [7]}, "tasks": tasks, "pipeline": {"rings": 3}},
        {"mesh": mesh, "tasks": [None], "pipeline": []},
    ):
        browser.show(written(tmp_path, page_html("t", [("r", sample(views=views))])))
        assert browser.complaints == []
        assert sections(browser)[-1] == "How it was run"
        assert browser.ask("document.body.innerText").count("This part cannot be drawn") == 3
        assert len(browser.ask("kernbench.problems")) == 3


def test_a_comparison_beside_its_runs(quiet, tmp_path):
    a, b = sample(), sample(400, timeline=timeline(800), metrics=sample(800).metrics)
    held = difference(a, b, ("before", "after"))
    quiet.show(written(tmp_path, page_html("comparison", [("before", a), ("after", b)], [held.to_dict()])))
    shown = quiet.ask("document.querySelector('#panel-0').innerText")
    assert held.summary in shown
    assert "critical path by kernel line" in shown
    quiet.picture(PICTURES / "compare.png", whole=False)
    quiet.ask("kernbench.select(2)")
    assert "Timeline" in sections(quiet)


CONTRAST = """(() => {
  const sheet = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    sheet.clearRect(0, 0, 1, 1);
    sheet.fillStyle = colour;
    sheet.fillRect(0, 0, 1, 1);
    return [...sheet.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const light = (rgb) => {
    const linear = rgb.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const over = (top, below) => [0, 1, 2].map((k) => top[3] * top[k] + (1 - top[3]) * below[k]);
  const ground = (node) => {
    const own = parts(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : node.parentElement ? over(own, ground(node.parentElement)) : [1, 1, 1];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((child) => child.nodeType === 3 && child.textContent.trim());
    if (!texts.length || !node.getClientRects().length || node.closest("svg, select, script")) continue;
    const below = ground(node).slice(0, 3);
    const [a, b] = [light(over(parts(getComputedStyle(node).color), below)), light(below)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push([node.textContent.slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_stands_out_from_its_ground(quiet, tmp_path, dark):
    row = {"by": "source", "reason": "known", "fingerprint": "1f0c22d4", "finding": unsafe().findings[0].to_dict()}
    runs = [("all", sample(views={**sample().views, "acknowledged": [row]})), ("bad", unsafe())]
    held = difference(sample(), sample(800), ("before", "after")).to_dict()
    quiet.show(written(tmp_path, page_html("t", runs, [held])), dark=dark)
    for tab in range(3):
        quiet.ask(f"kernbench.select({tab})")
        quiet.frame()
        assert quiet.ask(CONTRAST) == []


def test_the_focus_can_be_seen_wherever_it_goes(quiet, tmp_path):
    quiet.show(written(tmp_path, page_html("t", [("a", sample()), ("b", sample())])))
    seen = set()
    for _ in range(60):
        quiet.press("Tab")
        name, line = quiet.ask("""(a => [
          a.getAttribute("aria-label") || a.textContent.slice(0, 30) || a.tagName,
          parseFloat(getComputedStyle(a).outlineWidth) * (getComputedStyle(a).outlineStyle !== "none"),
        ])(document.activeElement)""")
        if quiet.ask("document.activeElement === document.body"):
            break
        assert line >= 1, name
        seen.add(name)
    for wanted in ("timeline", "task graph", "next wave", "play", "step before"):
        assert wanted in seen, seen
    wanted = [name for name in seen if name.startswith(("line 1, ", "spans whose name"))]
    assert len(wanted) == 2, seen


def test_paper_has_what_is_folded_away_on_the_screen(quiet, tmp_path):
    (race, _) = unsafe().findings
    found = [replace(race, message=f"writes {n}") for n in range(9)]
    quiet.show(written(tmp_path, page_html("t", [("r", replace(unsafe(), findings=found))])), dark=True)
    folded = "document.querySelectorAll('details:not([open])').length"
    closed = quiet.ask(folded)
    quiet.ask("window.dispatchEvent(new Event('beforeprint'))")
    # of many findings each still has its line
    assert quiet.ask(folded) == 7 < closed
    assert quiet.ask("document.documentElement.dataset.theme") == "light"
    quiet.ask("window.dispatchEvent(new Event('afterprint'))")
    assert quiet.ask(folded) == closed
    assert quiet.ask("document.documentElement.dataset.theme") == "dark"


# tables that are wider than their place
CUT = """[...document.querySelectorAll(".scroll")].filter((box) => box.querySelector("table"))
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.slice(0, 80))"""


def test_phone_dark_and_paper(quiet, milestone):
    quiet.show(milestone, width=390, height=844, mobile=True)
    assert quiet.ask("document.documentElement.scrollWidth") == 390
    assert quiet.ask(CUT) == []
    quiet.picture(PICTURES / "phone.png")
    quiet.show(milestone, dark=True)
    assert quiet.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    quiet.picture(PICTURES / "dark.png", whole=False)
    quiet.ask("document.getElementById('theme').click()")
    assert quiet.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # a sheet of paper
    quiet.show(milestone, width=720, height=990)
    quiet.media(kind="print")
    assert quiet.ask(CUT) == []
    quiet.media()
    quiet.print(PICTURES / "paper.pdf")
    assert (PICTURES / "paper.pdf").read_bytes().startswith(b"%PDF")
    width, height = struct.unpack(">II", (PICTURES / "phone.png").read_bytes()[16:24])
    assert width == 390
    assert height > 2000
