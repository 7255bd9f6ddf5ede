"""A renderable as plain text, for files and messages."""

from io import StringIO

from rich.console import Console, RenderableType

from kernbench.common.visible import visible


def plain_text(renderable: RenderableType, width: int = 120) -> str:
    """The text that a terminal of this width would show, without colours and control characters."""
    console = Console(file=StringIO(), width=width, markup=False, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable, soft_wrap=True)
    return visible(captured.get())
