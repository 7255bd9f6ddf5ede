"""The printed output of a kernel, as text."""

from rich.text import Text

from kernbench.result.run import Run

_SHOWN = 100


def printed_text(title: str, run: Run) -> Text:
    """The lines that the kernel printed, only the first ones of many; empty if it printed none."""
    lines = [str(line).rstrip("\n") for line in run.views.get("printf", [])]
    text = Text()
    if not lines:
        return text
    text.append(f"printed by {title}:\n", style="bold")
    text.append("\n".join(f"  {part}" for line in lines[:_SHOWN] for part in line.split("\n")))
    if len(lines) > _SHOWN:
        text.append(f"\n  and {len(lines) - _SHOWN:,} lines more (run.views['printf'], --json)", style="dim")
    return text
