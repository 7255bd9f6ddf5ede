"""A console whose reader may go away: `kernbench run ... | head`."""

import rich.console

from kernbench.cli.output.console import FOUND, owes_files, print_nothing_more


class Console(rich.console.Console):
    """Prints until somebody closes the pipe."""

    def on_broken_pipe(self) -> None:
        """Whoever closed the pipe has read enough: the command ends, unless it was asked for files, which it writes."""
        print_nothing_more(self.file)
        if not owes_files():
            raise SystemExit(FOUND)
