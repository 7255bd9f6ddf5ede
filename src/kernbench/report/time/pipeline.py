"""The barrier pipeline of a run as text: roles, rings of mbarriers, and for each stage the waits for its phases."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernbench.result.reading import Data

_HOW = {"arrive": "arrivals of", "commit": "commits of", "bytes": "copies begun by", "wait": ""}


def pipeline_text(view: Data) -> RenderableType:
    """`views["pipeline"]` of a run."""
    head = Text(f"pipeline of {view['block']}", style="bold")
    head.append(" in logical order, without time", style="dim")
    if not view["complete"]:
        head.append("; only its beginning was followed", style="yellow")
    parts: list[RenderableType] = [head]
    parts.extend(Text(f"  {role['name']}") for role in view["roles"])
    parts.extend(_ring(number, ring) for number, ring in enumerate(view["rings"]))
    return Group(*parts)


def _ring(number: int, ring: Data) -> RenderableType:
    count = len(ring["stages"])
    stages = "1 mbarrier" if count == 1 else f"{count} stages"
    text = Text(f"  ring {number}: {stages}, {ring['arrivals']} arrival{'s' * (ring['arrivals'] != 1)} a phase")
    for title, users in (("completed by", ring["completed_by"]), ("waited on by", ring["waited_on_by"])):
        names = "; ".join(_user(user) for user in users) or "nobody"
        text.append(f"\n    {title} {names}", style="" if users else "yellow")
    return Group(text, _stages(ring["stages"]))


def _user(user: Data) -> str:
    how = _HOW[user["how"]]
    return f"{how}{' ' * bool(how)}{user['role']}, line {user['line']}"


def _stages(stages: list[Data]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("    stage")
    for title in ("mbarrier", "phases", "bytes a phase", "waited on"):
        table.add_column(title)
    for number, stage in enumerate(stages):
        moved = ", ".join(f"{amount:,}" for amount in stage["bytes"])
        waits = "\n".join(f"{role}: {_wait(wait)}" for role, wait in stage["waits"].items())
        table.add_row(f"    {number}", stage["barrier"], str(stage["completed"]), moved, waits)
    return table


def _wait(wait: Data) -> str:
    parts = []
    phases = [max(phase, 0) for phase in wait["phases"] if wait["phases"][1] >= 0]
    if wait["fresh"]:
        parts.append("passes the fresh barrier")
    if phases:
        first, last = phases
        parts.append(f"phase {first}" if first == last else f"phases {first} to {last}")
    parts.append(f"parked {wait['parked']} of {wait['passed'] + wait['stuck']} times")
    if wait["stuck_in"]:
        parts.append(f"STUCK in phase {', '.join(map(str, wait['stuck_in']))}")
    return ", ".join(parts)
