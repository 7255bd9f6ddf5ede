"""Changes to a program's synchronisation: one line dropped, moved or altered."""

import random
from collections.abc import Callable

from kernbench.ptx.reference.programs.writer import BULK, WARP, Line

Lines = list[Line]


def _drop(lines: Lines, at: int, rng: random.Random) -> Lines:
    return [*lines[:at], *lines[at + 1 :]]


def _delay(lines: Lines, at: int, rng: random.Random) -> Lines:
    """Move the line down by one; not past a label or branch."""
    if at + 1 < len(lines) and not lines[at + 1].text.endswith(":") and "bra" not in lines[at + 1].text:
        return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    return _drop(lines, at, rng)


def _advance(lines: Lines, at: int, rng: random.Random) -> Lines:
    """Move the line up by one."""
    before = lines[at - 1].text if at else ":"
    if before.endswith(":") or "bra" in before:
        return _drop(lines, at, rng)
    return [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]


def _replaced(lines: Lines, at: int, text: str) -> Lines:
    return [*lines[:at], Line(text, lines[at].sync), *lines[at + 1 :]]


def _other_count(lines: Lines, at: int, rng: random.Random) -> Lines:
    head, _, count = lines[at].text.rstrip(";").rpartition(", ")
    return _replaced(lines, at, f"{head}, {max(WARP, int(count) + rng.choice((-WARP, WARP)))};")


def _other_barrier(lines: Lines, at: int, rng: random.Random) -> Lines:
    name, _, rest = lines[at].text.partition(" ")
    number, _, count = rest.rstrip(";").partition(", ")
    other = rng.choice([n for n in range(16) if str(n) != number])
    return _replaced(lines, at, f"{name} {other}, {count};")


def _no_wait(lines: Lines, at: int, rng: random.Random) -> Lines:
    """Arrive instead of sync; aligned, as lanes that arrive singly and do not wait may be counted in any round."""
    return _replaced(
        lines, at, lines[at].text.replace("barrier", "bar").replace(".aligned", "").replace("sync", "arrive")
    )


def _no_vote(lines: Lines, at: int, rng: random.Random) -> Lines:
    target = lines[at].text.split()[1].rstrip(",")
    return _replaced(lines, at, f"mov.u32 {target}, 0;")


def _other_bytes(lines: Lines, at: int, rng: random.Random) -> Lines:
    return _replaced(lines, at, lines[at].text.replace(f", {BULK};", f", {BULK + rng.choice((-16, 16))};"))


def _relaxed(lines: Lines, at: int, rng: random.Random) -> Lines:
    return _replaced(lines, at, lines[at].text.replace("acquire", "relaxed").replace("release", "relaxed"))


def _keep_more(lines: Lines, at: int, rng: random.Random) -> Lines:
    return _replaced(lines, at, "cp.async.wait_group 2;")


CHANGES: dict[str, tuple[Callable[[Lines, int, random.Random], Lines], ...]] = {
    "bar": (_drop, _delay, _advance),
    "unaligned": (_drop,),
    "red": (_no_vote,),
    "count": (_drop, _delay, _advance, _other_count, _other_barrier, _no_wait),
    "warp": (_drop, _delay, _advance),
    "wait": (_drop, _delay),
    "arrive": (_drop, _advance),
    "copied": (_drop, _delay, _keep_more),
    "expect": (_other_bytes,),
    "proxy": (_drop, _delay, _advance),
    "acquire": (_relaxed,),
    "release": (_relaxed, _advance),
    "cluster": (_drop, _delay, _advance),
    "fence": (_drop, _advance, _delay),
}
