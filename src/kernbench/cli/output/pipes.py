"""A console whose reader may go away: `kernbench run ... | head`. What it prints comes from anybody's files."""

from collections.abc import Iterable

import rich.console
from rich.segment import Segment

from kernbench.cli.output.console import FOUND, owes_files, print_nothing_more
from kernbench.common.visible import visible


class Console(rich.console.Console):
    """Prints until somebody closes the pipe. Styles are its own: an escape in a text is shown, and not obeyed."""

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The pieces of what is printed, with characters that a terminal would obey written out."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(visible(piece.text), piece.style)

    def on_broken_pipe(self) -> None:
        """Whoever closed the pipe has read enough: the command ends, unless it was asked for files, which it writes."""
        print_nothing_more(self.file)
        if not owes_files():
            raise SystemExit(FOUND)
