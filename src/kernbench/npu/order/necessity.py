"""Which posts a wait cannot end without: all programs are simulated without one post, as far as they get.

Programs are the posts and waits of each core, in order; those of a task begin when the tasks it waits for have ended. A
wait on signals passes as soon as the posts made could satisfy it under some timing, so what is not reached without a
post is ordered after it. Values that were certainly overwritten before a wait do not count for it, and more of these
follow from what was found: so the analysis is repeated until nothing is added.
"""

from collections import defaultdict

from kernbench.npu.tasks.signals import SETS, Post, Signals, Wait

# most posts times events that are simulated; beyond it a wait depends on the posts made before it ended
MOST_STEPS = 4_000_000
_ROUNDS = 8
Element = tuple[int, int]
Event = Post | Wait


class Necessity:
    """`needed[wait]` has a bit for each post that must come before a wait."""

    def __init__(self, signals: Signals):
        self._signals = signals
        self._programs: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in in_order(signals):
            self._programs[event.block.number, event.lane].append(event)
        self.posts: dict[Element, list[Post]] = defaultdict(list)
        for post in signals.posts:
            if post.element is not None:
                self.posts[post.element].append(post)
        self.needed = [0] * len(signals.waits)

    def settle(self) -> None:
        """Repeat the analysis until nothing is added."""
        events = len(self._signals.posts) + len(self._signals.waits)
        if not any(wait.elements for wait in self._signals.waits) or len(self._signals.posts) * events > MOST_STEPS:
            self.needed = [_bits(self._seen(wait)) for wait in self._signals.waits]
            return
        for _ in range(_ROUNDS):
            found = list(self.needed)
            for post in self._signals.posts:
                for wait in self._out_of_reach(post):
                    found[wait] |= 1 << post.number
            if found == self.needed:
                return
            self.needed = found

    def _seen(self, wait: Wait) -> list[int]:
        """The posts made before the wait ended, of the flag or the signals that it waited for."""
        of_signals = [p.number for e in wait.elements for p in self.posts[e] if p.number < wait.seen]
        return [*wait.posts, *of_signals]

    def _out_of_reach(self, without: Post) -> list[int]:
        """The waits that are not passed if one post is never made."""
        at = dict.fromkeys(self._programs, 0)
        left: dict[int, int] = defaultdict(int)
        for program in self._programs.values():
            left[program[0].block.task.number] += 1
        came: set[int] = set()
        moves = True
        while moves:
            moves = False
            for key, program in self._programs.items():
                first = at[key]
                task = program[0].block.task
                if first == 0 and any(n and task.after(number) for number, n in left.items()):
                    continue
                while at[key] < len(program) and self._passes(program[at[key]], without, came):
                    at[key] += 1
                if at[key] > first:
                    moves = True
                    left[task.number] -= at[key] == len(program)
        return [e.number for k, p in self._programs.items() for e in p[at[k] :] if isinstance(e, Wait)]

    def _passes(self, event: Event, without: Post, came: set[int]) -> bool:
        if isinstance(event, Post):
            if event is without:
                return False
            came.add(event.number)
            return True
        if not event.elements:
            return came.issuperset(event.posts)
        return all(self._may_hold(event, element, came) for element in event.elements)

    def _may_hold(self, wait: Wait, element: Element, came: set[int]) -> bool:
        """Whether an element could satisfy a wait at some time, with these posts."""
        posts = [post for post in self.posts[element] if post.number in came]
        start = self._signals.initial[element]
        if not any(post.op == SETS for post in self.posts[element]):
            low = start + sum(min(0, post.value) for post in posts)
            high = start + sum(max(0, post.value) for post in posts)
            return _between(wait, low, high)
        return any(wait.holds(value) for value in self._values(wait, element, start, came))

    def _values(self, wait: Wait, element: Element, start: int, came: set[int]) -> list[int]:
        """The values a signal may hold after settings: all but those that were certainly overwritten."""
        posts = self.posts[element]
        values = []
        for number, value in enumerate([start, *(p.before + p.value if p.op != SETS else p.value for p in posts)]):
            is_there = number == 0 or posts[number - 1].number in came
            is_over = number < len(posts) and self.needed[wait.number] >> posts[number].number & 1
            if is_there and not is_over:
                values.append(value)
        return values


def in_order(signals: Signals) -> list[Event]:
    """Posts and waits in the order in which they were made and ended."""
    events: list[Event] = [*signals.posts, *signals.waits]
    return sorted(events, key=_made)


def _made(event: Event) -> tuple[int, int, int]:
    """A wait comes between the posts that it saw and those that it did not."""
    return (event.seen, 1, event.number) if isinstance(event, Wait) else (event.number, 2, 0)


def _between(wait: Wait, low: int, high: int) -> bool:
    """Whether a sum that goes from low to high may satisfy a wait on its way."""
    if wait.op == "eq":
        return low <= wait.target <= high
    if wait.op == "ne":
        return not low == high == wait.target
    return wait.holds(high if wait.op in ("gt", "ge") else low)


def _bits(numbers: list[int]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
