"""Numbers of instructions in shadow cells, in the order in which they first access memory.

Cells have 16 bits for an instruction. A kernel may have more instructions than that, but few of them access memory, and
only those that did so in a launch need a number.
"""

from kernbench.ptx.emulator.program.program import Site

SITE_LIMIT = (1 << 16) - 1
# shared by all instructions beyond the limit
_UNKNOWN = Site(
    -1, "", "", 0, f"an instruction whose line is not kept: more than {SITE_LIMIT:,} instructions access memory"
)


class AccessSites:
    """The numbers of one launch's instructions; 0 is for those beyond `limit`. `numbered` has the instructions."""

    def __init__(self, limit: int = SITE_LIMIT):
        self._limit = limit
        self.numbered = [_UNKNOWN]
        self._numbers: dict[int, int] = {}

    def number(self, site: Site) -> int:
        """The number of an instruction that accesses memory."""
        found = self._numbers.get(site.number)
        if found is None:
            found = len(self.numbered) if len(self.numbered) <= self._limit else 0
            self._numbers[site.number] = found
            if found:
                self.numbered.append(site)
        return found
