"""Undefined values in memory: for each word of a space, where the last one came from, and its form."""

from types import EllipsisType

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s, UInt64s
from kernbench.ptx.emulator.lanes.forms import Forms
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.observer.origins import Origin

WORD_BYTES = 4
# words per page
_PAGE = 1 << 16


class _Words:
    """A number for each word of a space, 0 where none was set."""

    def __init__(self, dtype: str) -> None:
        # by page number
        self._pages: dict[int, Array] = {}
        self._dtype = dtype

    def put(self, words: Int64s, values: Array) -> None:
        """Set the numbers of words, [words]."""
        for page, here in _by_page(words):
            if page not in self._pages:
                self._pages[page] = np.zeros(_PAGE, self._dtype)
            self._pages[page][words[here] % _PAGE] = values[here] if values.ndim else values

    def clear(self, words: Int64s) -> None:
        """Forget the numbers of words."""
        for page, here in _by_page(words) if self._pages else ():
            if page in self._pages:
                self._pages[page][words[here] % _PAGE] = 0

    def one(self, word: int) -> int:
        """The number of a word."""
        page = self._pages.get(word // _PAGE)
        return 0 if page is None else int(page[word % _PAGE])

    def get(self, words: Int64s) -> Array:
        """The numbers of words."""
        found = np.zeros(words.shape, self._dtype)
        for page, here in _by_page(words) if self._pages else ():
            if page in self._pages:
                found[here] = self._pages[page][words[here] % _PAGE]
        return found


def _by_page(words: Int64s) -> list[tuple[int, Mask | EllipsisType]]:
    """The pages of words, and which of them lie in each."""
    if not words.size:
        return []
    first, last = int(words.min()) // _PAGE, int(words.max()) // _PAGE
    if first == last:
        return [(first, ...)]
    pages = words // _PAGE
    return [(page, pages == page) for page in np.unique(pages).tolist()]


class Stored:
    """The undefined values in a space; without `forms` these are not kept."""

    def __init__(self, forms: Forms | None) -> None:
        self._new = forms
        self._numbers, self._forms = _Words("int32"), _Words("uint64")
        self._origins: list[Origin] = []

    def put(self, offsets: Array, origin: Origin) -> None:
        """Undefined bytes were stored at some offsets, of which no more is known."""
        if origin not in self._origins:
            self._origins.append(origin)
        words = np.unique(offsets // WORD_BYTES)
        self._numbers.put(words, np.array(self._origins.index(origin) + 1))
        self._forms.clear(words)

    def put_forms(self, offsets: Array, forms: UInt64s) -> None:
        """Undefined words were stored that have these forms."""
        if self._new is None:
            return
        whole = offsets % WORD_BYTES == 0
        words, forms = offsets[whole] // WORD_BYTES, forms[whole]
        self._forms.put(words, forms)
        # lanes that store to one word may store different values
        self._forms.clear(words[self._forms.get(words) != forms])

    def origin(self, offset: int) -> Origin | None:
        """The origin of the undefined value at an offset, None if there is none."""
        number = self._numbers.one(offset // WORD_BYTES)
        return self._origins[number - 1] if number else None

    def forms(self, offsets: Array, undefined: Mask) -> UInt64s | None:
        """The forms of the words at offsets, [offsets, words], of which some bytes, [offsets, bytes], are undefined.

        0 where some are not.
        """
        if self._new is None or undefined.shape[1] % WORD_BYTES:
            return None
        lost = undefined.reshape(len(offsets), -1, WORD_BYTES).all(axis=2) & (offsets % WORD_BYTES == 0)[:, None]
        every = offsets[:, None] // WORD_BYTES + np.arange(lost.shape[1])
        words = every[lost]
        found = np.zeros(lost.shape, np.uint64)
        forms = self._forms.get(words)
        # several lanes may load one word
        unknown = np.unique(words[forms == 0])
        if unknown.size:
            self._forms.put(unknown, self._new.new(unknown.size))
            forms = self._forms.get(words)
        found[lost] = forms
        return found

    def move(self, sources: Array, targets: Array, nbytes: int) -> None:
        """Ranges of bytes were copied, with what is known of them."""
        inside = np.arange(0, nbytes, WORD_BYTES)
        read, written = sources[:, None] + inside, targets[:, None] + inside
        numbers, forms = self._numbers.get(read // WORD_BYTES), self._forms.get(read // WORD_BYTES)
        self._numbers.put(written[numbers != 0] // WORD_BYTES, numbers[numbers != 0])
        whole = (read | written | nbytes) % WORD_BYTES == 0
        self._forms.clear(written // WORD_BYTES)
        self._forms.put(written[whole] // WORD_BYTES, forms[whole])

    def forget(self, firsts: Array, nbytes: int) -> None:
        """Nobody has written ranges of bytes from now on."""
        words = firsts[:, None] // WORD_BYTES + np.arange(-(-nbytes // WORD_BYTES))
        self._numbers.clear(words)
        self._forms.clear(words)
