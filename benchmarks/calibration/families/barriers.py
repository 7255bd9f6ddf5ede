"""Barriers: bar.sync by warps, named barriers and mbarriers as a ping-pong of two warps, and rings with consumers."""

from collections.abc import Iterator

from ..case import Case
from ..source import Source, lines

UNROLL = 16
_MBARRIERS = ".shared .align 8 .b64 bars[8];"


def sync() -> Iterator[Case]:
    """All warps of a CTA meet, again and again."""
    made = Source("bar_sync", lines(*["bar.sync 0;"] * UNROLL))
    for warps in (1, 2, 4, 8, 16, 32):
        yield Case("barrier.sync", made, {"warps": warps}, UNROLL, "barriers", block=32 * warps)


def _loop(label: str, body: str, turn: str = "%turn") -> str:
    """A loop of one role."""
    return lines(
        f"{label}:",
        '.pragma "nounroll";',
        body,
        f"add.u32 {turn}, {turn}, 1;",
        f"setp.lt.u32 %again, {turn}, %turns;",
        f"@%again bra {label};",
    )


def _two_roles(first: str, second: str) -> str:
    """Warp 0 does one thing, all others another."""
    return lines(
        "setp.ne.u32 %p1, %warp, 0;", "@%p1 bra others;", first, "bra meet;", "others:", second, "meet:", "bar.sync 0;"
    )


def named() -> Iterator[Case]:
    """Warp 0 arrives at one barrier and waits at another; warp 1 the other way round: two hops a turn."""
    first = _loop("ping", "bar.arrive 1, 64;\nbar.sync 2, 64;")
    second = _loop("pong", "bar.sync 1, 64;\nbar.arrive 2, 64;")
    yield Case("barrier.named", Source("named_hop", roles=_two_roles(first, second)), {}, 2, "hops", block=64)


def _initialised(counts: list[int]) -> str:
    """mbarriers with their counts, by thread 0."""
    begun = [f"@%p2 mbarrier.init.shared::cta.b64 [bars+{8 * n}], {count};" for n, count in enumerate(counts)]
    return lines("setp.eq.u32 %p2, %thread, 0;", *begun, "mov.u32 %r10, 0;", "mov.u32 %r11, 0;", "bar.sync 0;")


def _wait(label: str, barrier: int, parity: str) -> str:
    """Until the phase of a parity is over."""
    return lines(
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 %p3, [bars+{8 * barrier}], {parity};",
        f"@!%p3 bra {label};",
    )


def _arrive(barrier: int, guard: str = "") -> str:
    return f"{guard}mbarrier.arrive.shared::cta.b64 _, [bars+{8 * barrier}];"


def hops() -> Iterator[Case]:
    """mbarriers as a ping-pong: lane 0 of a warp arrives, the other warp wakes; two hops a turn."""
    guard = "@%p4 "
    flip = "xor.b32 %r10, %r10, 1;"
    first = _loop("ping", lines(_arrive(0, guard), _wait("wait_a", 1, "%r10"), flip))
    second = _loop("pong", lines(_wait("wait_b", 0, "%r10"), _arrive(1, guard), flip))
    setup = lines(_initialised([1, 1]), "setp.eq.u32 %p4, %lane, 0;")
    made = Source("mbarrier_hop", roles=_two_roles(first, second), setup=setup, outside=_MBARRIERS)
    yield Case("barrier.hop", made, {}, 2, "hops", block=64)


def waits() -> Iterator[Case]:
    """An arrive that completes its phase, and a try_wait that finds it complete; and arrives alone."""
    setup = lines(_initialised([32, 1 << 19]))
    body = lines(_arrive(0), _wait("wait", 0, "%r10"), "xor.b32 %r10, %r10, 1;")
    yield Case("barrier.own", Source("own_wait", body, setup, outside=_MBARRIERS), {}, 1, "rounds")
    # of a count that is never reached
    lone = lines(
        "setp.ne.u32 %p4, %lane, 0;", "@%p4 bra meet;", _loop("arrive", lines(*[_arrive(1)] * UNROLL)), "meet:"
    )
    made = Source("arrives", roles=lone, setup=setup, outside=_MBARRIERS)
    for warps in (1, 4, 16):
        yield Case("barrier.arrive", made, {"warps": warps}, UNROLL, "arrives of a warp", block=32 * warps)


def rings() -> Iterator[Case]:
    """One producer warp and some consumers with a full and an empty barrier: a stage of nothing at each turn."""
    for consumers in (1, 4, 12):
        first = _loop("produce", lines(_wait("free", 1, "%r11"), _arrive(0, "@%p4 "), "xor.b32 %r11, %r11, 1;"))
        second = _loop("consume", lines(_wait("filled", 0, "%r10"), _arrive(1, "@%p4 "), "xor.b32 %r10, %r10, 1;"))
        setup = lines(_initialised([1, consumers]), "setp.eq.u32 %p4, %lane, 0;", "mov.u32 %r11, 1;")
        made = Source(f"ring_{consumers}", roles=_two_roles(first, second), setup=setup, outside=_MBARRIERS)
        yield Case("barrier.ring", made, {"consumers": consumers}, 1, "rounds", block=32 * (1 + consumers))


def parked() -> Iterator[Case]:
    """A try_wait for a phase that nobody ends: how long until it fails."""
    attempt = "mbarrier.try_wait.parity.shared::cta.b64 %p3, [bars], 0;\nselp.u32 %r1, 1, 0, %p3;"
    body = lines(attempt, "add.u32 %result, %result, %r1;")
    made = Source("parked", body, _initialised([1]), outside=_MBARRIERS)
    yield Case("barrier.parked", made, {}, 1, "tries", turns=(4, 12))
