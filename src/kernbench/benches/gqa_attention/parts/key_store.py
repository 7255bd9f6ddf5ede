"""A rank's store of received K and V: messages of all heads, by position in the sequence.

A message is some consecutive rows of K (and of V), all heads side by side, [rows, h_kv * d_head]. Attention is computed
for one head over any set of rows: separate rows are joined first, so that a matrix product is long enough to be worth
filling the array.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.tiles import Tiling, message_bytes
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# (position, rows): consecutive keys of a user
Run = tuple[int, int]


def joined(runs: Sequence[Run]) -> list[Run]:
    """The same keys in order, with adjacent runs merged."""
    whole: list[Run] = []
    for position, rows in sorted(runs):
        if whole and sum(whole[-1]) == position:
            whole[-1] = (whole[-1][0], whole[-1][1] + rows)
        else:
            whole.append((position, rows))
    return whole


class KeyStore:
    """K and V of one user, by position. Messages are pairs of K and V, numbered within their owner's chunk.

    `is_contiguous`: all positions are consecutive in HBM, from `addresses(head, position)` on.
    """

    is_contiguous = False

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        self._tl = tl
        self._tiling = tiling
        self._user = user
        self._pointers = (k_ptr, v_ptr)
        self._types = (tl.element_type(k_ptr), tl.element_type(v_ptr))
        self._width = tiling.h_kv * tiling.d_head
        self._messages: dict[int, list[Run]] = {}

    def messages(self, owner: int) -> list[Run]:
        """The messages of a rank's chunk."""
        if owner not in self._messages:
            most = max(1, message_bytes(self._tl) // (self._width * max(ITEMSIZE[t] for t in self._types)))
            self._messages[owner] = [
                (s.position + first, min(most, s.rows - first))
                for s in self._tiling.key_segments(owner, self._user)
                for first in range(0, s.rows, most)
            ]
        return self._messages[owner]

    # What travels

    def count(self, owner: int) -> int:
        """Number of messages of a rank's chunk."""
        return len(self.messages(owner))

    def shapes(self, owner: int, number: int) -> PairShapes:
        """Shape and element type of a message's K and V."""
        shape = (self.messages(owner)[number][1], self._width)
        return shape, self._types[0], shape, self._types[1]

    def get(self, owner: int, number: int) -> Pair:
        """A message to send, the rank's own or one to pass on."""
        raise NotImplementedError

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store a message that arrived."""
        self._keep(self.messages(owner)[number], pair)

    def keep_own(self) -> None:
        """Store the rank's own messages together with the others."""
        for run in self.messages(self._tiling.rank):
            self._keep(run, self._own(run))

    def _own(self, run: Run) -> Pair:
        k, v = (self._load_own(pointer, *run) for pointer in self._pointers)
        return k, v

    def _load_own(self, pointer: int, position: int, rows: int, heads: range | None = None) -> TensorHandle:
        """Rows of the rank's own K or V, of all heads or of some adjacent ones."""
        first = next(
            s.first + position - s.position
            for s in self._tiling.key_segments(self._tiling.rank, self._user)
            if s.position <= position < s.position + s.rows
        )
        row = self._user * self._tiling.stored_rows + first
        d_head, item = self._tiling.d_head, ITEMSIZE[self._tl.element_type(pointer)]
        if heads is None:
            return self._load(pointer + row * self._width * item, (rows, self._width), None)
        first = row * self._width + heads.start * d_head
        return self._load(pointer + first * item, (rows, len(heads) * d_head), (self._width, 1))

    def _load(self, address: int, shape: tuple[int, int], strides: tuple[int, int] | None) -> TensorHandle:
        handle: TensorHandle = self._tl.load(address, shape=shape, strides=strides)
        return handle

    # What is folded

    def head(self, head: int, runs: Sequence[Run]) -> Pair:
        """K and V of one head at these messages' rows, in order, [keys, d_head] each."""
        pieces = [self._pieces(which, head, runs) for which in (0, 1)]
        k, v = (_join(self._tl, p) for p in pieces)
        return k, v

    def addresses(self, head: int, position: int) -> tuple[int, int]:
        """The addresses of K and V of a head from `position` on."""
        raise NotImplementedError

    @property
    def row_bytes(self) -> tuple[int, int]:
        """Distance in bytes of adjacent rows of K, and of V."""
        k, v = (self._width * ITEMSIZE[t] for t in self._types)
        return k, v

    def _keep(self, run: Run, pair: Pair) -> None:
        raise NotImplementedError

    def _pieces(self, which: int, head: int, runs: Sequence[Run]) -> list[TensorHandle]:
        raise NotImplementedError


class ScratchKeys(KeyStore):
    """Messages stay in scratch; some rows of a head are a view of one."""

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        self._held: dict[Run, Pair] = {}

    def get(self, owner: int, number: int) -> Pair:
        """The handles it arrived as."""
        return self._held[self.messages(owner)[number]]

    def _keep(self, run: Run, pair: Pair) -> None:
        self._held[run] = pair

    def _pieces(self, which: int, head: int, runs: Sequence[Run]) -> list[TensorHandle]:
        return [piece for run in runs for piece in self._views(which, head, run)]

    def _views(self, which: int, head: int, run: Run) -> Iterator[TensorHandle]:
        first, last = head * self._tiling.d_head, (head + 1) * self._tiling.d_head
        start, stop = run[0], sum(run)
        for message in sorted(self._held):
            low, high = max(start, message[0]), min(stop, sum(message))
            if low < high:
                yield self._held[message][which][low - message[0] : high - message[0], first:last]


class HbmKeys(KeyStore):
    """Messages are stored in HBM in the layout of K and V, [position, h_kv, d_head]; any rows of a head are one
    load.
    """

    is_contiguous = True

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, k_ptr: int, v_ptr: int):
        super().__init__(tl, tiling, user, k_ptr, v_ptr)
        shape = (tiling.total_kv[user], self._width)
        self._landing = [tl.workspace(shape, t, "gathered keys") for t in self._types]

    def get(self, owner: int, number: int) -> Pair:
        """Load it from the tensor, or from where it was stored."""
        run = self.messages(owner)[number]
        if owner == self._tiling.rank:
            return self._own(run)
        k, v = (self._tl.load(self._address(i, run[0]), shape=(run[1], self._width)) for i in (0, 1))
        return k, v

    def addresses(self, head: int, position: int) -> tuple[int, int]:
        """In the memory for received keys."""
        return self._address(0, position, head), self._address(1, position, head)

    def _address(self, which: int, position: int, head: int = 0) -> int:
        elements = position * self._width + head * self._tiling.d_head
        address: int = self._landing[which] + elements * ITEMSIZE[self._types[which]]
        return address

    def _keep(self, run: Run, pair: Pair) -> None:
        for which, handle in enumerate(pair):
            self._tl.store(self._address(which, run[0]), handle)

    def _pieces(self, which: int, head: int, runs: Sequence[Run]) -> list[TensorHandle]:
        return _rows_at(self._tl, self._tiling, self._address(which, 0, head), self.row_bytes[which], runs)


def head_rows(
    tl: "TLContext", tiling: Tiling, addresses: Sequence[int], row_bytes: tuple[int, int], runs: Sequence[Run]
) -> Pair:
    """K and V of one head in HBM from two addresses on, at these rows, in order."""
    both = zip(addresses, row_bytes, strict=True)
    pieces = [_rows_at(tl, tiling, first, step, runs) for first, step in both]
    k, v = (_join(tl, p) for p in pieces)
    return k, v


def _rows_at(tl: "TLContext", tiling: Tiling, first: int, step: int, runs: Sequence[Run]) -> list[TensorHandle]:
    """Rows of a head that are `step` bytes apart, from address `first` on; adjacent runs are one load."""
    shape, steps = tiling.d_head, (tiling.h_kv * tiling.d_head, 1)
    return [tl.load(first + position * step, shape=(rows, shape), strides=steps) for position, rows in joined(runs)]


def _join(tl: "TLContext", pieces: list[TensorHandle]) -> TensorHandle:
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = tl.cat(whole, piece, axis=0)
    return whole
