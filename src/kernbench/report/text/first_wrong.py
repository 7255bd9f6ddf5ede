"""The first wrong intermediate, in words."""

from rich.text import Text

from kernbench.result.finding import SourceLocation
from kernbench.result.run import Run


def first_wrong_text(title: str, run: Run) -> Text:
    """The first wrong value with its location, element and error; or how many were right, and names that never
    occurred.
    """
    view = run.views["first_wrong"]
    wrong, text = view["wrong"], Text()
    right = ", ".join(f"{name} {count} times" for name, count in view["right"].items())
    if wrong is None:
        text.append(f"{title}: no intermediate leaves the golden", style="bold")
        text.append(
            f" ({right})" if right else ": the kernel named none (tl., core. or ctx.checkpoint(name, value, ...))"
        )
    else:
        where = wrong["where"]
        keys = "".join(f", {key}={value}" for key, value in wrong["keys"].items())
        text.append(f"{title}: {wrong['name']} is the first intermediate that leaves the golden\n", style="bold")
        text.append(f"  {SourceLocation(where['file'], where['line'])}: {wrong['who']}{keys}\n  > {where['text']}\n")
        text.append(
            f"  element {tuple(wrong['element'])} is {wrong['actual']:.6g}, the golden's {wrong['expected']:.6g} "
            f"(allowed {wrong['tolerance']:.3g}); {wrong['wrong']:,} of {wrong['elements']:,} are wrong\n"
        )
        text.append(f"  right before it: {right or 'none'}")
        last = view.get("last_right")
        if last is not None:
            at = SourceLocation(last["where"]["file"], last["where"]["line"])
            keys = "".join(f", {key}={value}" for key, value in last["keys"].items())
            text.append(f"\n  the last that was right: {last['name']} at {at}, {last['who']}{keys}")
    if view["never"]:
        text.append(f"\n  never met: {', '.join(view['never'])}")
    return text
