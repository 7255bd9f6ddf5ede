"""A console whose reader may close the pipe: `kernbench run ... | head`. It escapes control characters in what it
prints.
"""

from collections.abc import Iterable

import rich.console
from rich.segment import Segment

from kernbench.cli.output.console import FOUND, owes_files, print_nothing_more
from kernbench.common.visible import visible


class Console(rich.console.Console):
    """Prints until the pipe is closed. Only its own styles take effect: escape sequences in a text are shown as
    text.
    """

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments to print, with control characters escaped."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(visible(piece.text), piece.style)

    def on_broken_pipe(self) -> None:
        """A closed pipe ends the command, unless it was asked for files, which it still writes."""
        print_nothing_more(self.file)
        if not owes_files():
            raise SystemExit(FOUND)
