"""K and V of all ranks on every PE of a team: the leader receives them from the other ranks and passes heads on inside.

Every PE stores them in HBM, by position; the leader whole messages, since it passes them on to other ranks, the others
only their own heads. All of a team know in which order messages reach their leader, so messages need no header.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.key_store import HbmKeys, KeyStore
from kernbench.benches.gqa_attention.parts.long_blocks import Rows
from kernbench.benches.gqa_attention.parts.routes import Hop
from kernbench.benches.gqa_attention.parts.stream_kv import gather
from kernbench.benches.gqa_attention.parts.teams import Team
from kernbench.benches.gqa_attention.parts.tiles import Tiling
from kernbench.benches.gqa_attention.parts.waves import Pair
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# most messages in flight to the next PE of the team before the oldest is waited for
ON_THEIR_WAY = 4


class Outbox:
    """Messages in flight that need not be waited for at once; a few at a time hold their scratch memory."""

    def __init__(self, tl: "TLContext", most: int = ON_THEIR_WAY):
        self._tl = tl
        self._most = most
        self._leaving: deque[Any] = deque()

    def send(self, direction: str, handle: TensorHandle) -> None:
        """Start a message."""
        while len(self._leaving) >= self._most:
            self._leaving.popleft().wait()
        self._leaving.append(self._tl.send_async(direction, handle))

    def flush(self) -> None:
        """Wait for all of them."""
        while self._leaving:
            self._leaving.popleft().wait()


class LeaderKeys(HbmKeys):
    """All heads, stored in HBM; what arrives from other ranks is also sent to the arms of the team."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, pointers: tuple[int, int], team: Team):
        super().__init__(tl, tiling, user, *pointers)
        # for each arm the direction and the columns of the heads that it needs
        self._needed = [(way, _columns(team.span(positions), tiling.d_head)) for way, positions in team.arms]
        self._outbox = Outbox(tl)

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store a message that arrived, and pass on what each arm needs of it."""
        super().put(owner, number, pair)
        for direction, columns in self._needed:
            for handle in pair:
                self._outbox.send(direction, handle[:, columns])

    def collect(self, hops: list[Hop]) -> None:
        """The rank's own keys and all others."""
        self.keep_own()
        gather(self._tl, self, hops)
        self._outbox.flush()

    def rows(self, head: int) -> tuple[Rows, Rows]:
        """The rows of K and V of a head."""
        k, v = (Rows(self._address(i, 0, head), self.row_bytes[i], self._width) for i in (0, 1))
        return k, v


class MemberKeys(KeyStore):
    """The heads of one PE of a team, stored in HBM."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, pointers: tuple[int, int], team: Team):
        super().__init__(tl, tiling, user, *pointers)
        assert team.position is not None
        self._team = team
        self._heads = team.heads(team.position)
        shape = (tiling.total_kv[user], len(self._heads) * tiling.d_head)
        self._landing = [tl.workspace(shape, t, "gathered keys") for t in self._types]
        self._outbox = Outbox(tl)

    def collect(self, hops: list[Hop]) -> None:
        """The rank's own keys, which every PE of the team can load, and all others from the leader."""
        self.keep_own()
        team, d_head = self._team, self._tiling.d_head
        span = team.span([team.position or 0, *team.beyond])
        own = _columns(self._heads, d_head, span.start)
        onward = _columns(team.span(team.beyond), d_head, span.start) if team.beyond else None
        for owner, number in self._arrivals(hops):
            run = self.messages(owner)[number]
            shape = (run[1], len(span) * d_head)
            pair = tuple(self._tl.recv(dir=team.inward, shape=shape, dtype=t) for t in self._types)
            if onward is not None:
                for handle in pair:
                    self._outbox.send(team.outward, handle[:, onward])
            self._land(run[0], [handle[:, own] for handle in pair])
        self._outbox.flush()

    def _arrivals(self, hops: list[Hop]) -> Iterator[tuple[int, int]]:
        """(owner, number) of the messages that reach the leader, in the order in which `gather` receives them."""
        for hop in hops:
            owners = list(dict.fromkeys(route.owner for route in hop.receives if route.owner is not None))
            for number in range(max(map(self.count, owners), default=0)):
                yield from ((owner, number) for owner in owners if number < self.count(owner))

    def keep_own(self) -> None:
        """The rank's own keys of this PE's heads."""
        for position, rows in self.messages(self._tiling.rank):
            handles = [self._load_own(p, position, rows, self._heads) for p in self._pointers]
            self._land(position, handles)

    def _land(self, position: int, handles: list[TensorHandle]) -> None:
        for which, handle in enumerate(handles):
            self._tl.store(self._landing[which] + position * self._step(which), handle)

    def _step(self, which: int) -> int:
        return len(self._heads) * self._tiling.d_head * ITEMSIZE[self._types[which]]

    def rows(self, head: int) -> tuple[Rows, Rows]:
        """The rows of K and V of a head."""
        ahead = (head - self._heads.start) * self._tiling.d_head
        width = len(self._heads) * self._tiling.d_head
        k, v = (Rows(self._landing[i] + ahead * ITEMSIZE[self._types[i]], self._step(i), width) for i in (0, 1))
        return k, v


def _columns(heads: range, d_head: int, first: int = 0) -> slice:
    """The columns of some heads in a row that begins with head `first`."""
    return slice((heads.start - first) * d_head, (heads.stop - first) * d_head)
