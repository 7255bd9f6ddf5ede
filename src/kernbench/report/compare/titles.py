"""Titles of several runs: panel or kernel and, if those are not unique, the parameters that differ."""

from collections import Counter
from collections.abc import Sequence

from kernbench.result.run import Run


def titles(runs: Sequence[Run]) -> list[str]:
    """A name for each run, all different."""
    plain = [_plain(run) for run in runs]
    shared = Counter(plain)
    names = []
    for title, run in zip(plain, runs, strict=True):
        alike = [other for other, name in zip(runs, plain, strict=True) if name == title]
        names.append(title if shared[title] == 1 else f"{title} {_difference(run, alike)}".strip())
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name} ({seen[name]})"
    return names


def _plain(run: Run) -> str:
    origin = run.origin
    return str(origin.get("panel") or origin.get("bench") or origin.get("kernel") or "run")


def _difference(run: Run, alike: Sequence[Run]) -> str:
    """The parameters in which a run differs from those of the same name."""
    own = _parameters(run)
    others = [_parameters(other) for other in alike]
    keys = [key for key in own if any(other.get(key) != own[key] for other in others)]
    return ", ".join(f"{key}={own[key]}" for key in keys)


def _parameters(run: Run) -> dict[str, object]:
    """Parameters, machine and seed as texts."""
    origin = run.origin
    held = origin.get("parameters")
    flat = {**(held if isinstance(held, dict) else {})}
    flat |= {key: origin[key] for key in ("machine", "seed", "schedule", "size") if key in origin and key not in flat}
    return {str(key): str(value) for key, value in flat.items()}


def apart(a: str, b: str) -> tuple[str, str, str]:
    """The common part of two names, and the rest of each: "before: decode" and "after: decode" become before and
    after.
    """
    x, y = a.split(), b.split()
    first = 0
    while first < min(len(x), len(y)) - 1 and x[first] == y[first]:
        first += 1
    last = 0
    while last < min(len(x), len(y)) - first - 1 and x[-1 - last] == y[-1 - last]:
        last += 1
    shared = " ".join([*x[:first], *x[len(x) - last :]])
    own = [" ".join(words[first : len(words) - last]).rstrip(":,") for words in (x, y)]
    return (shared, own[0], own[1]) if own[0] and own[1] and own[0] != own[1] else ("", a, b)
