"""Segments of random programs that pass values between threads by barriers, warp operations, atomics and flags."""

from kernbench.ptx.reference.programs.writer import COUNTERS, WARP, Writer, put, some_lanes_of, take, two_groups


def exchange(w: Writer) -> None:
    """Every thread writes, all synchronise, every thread reads another's slot; perhaps several times."""
    base, source = w.shared(w.warps * WARP * 4), w.rng.choice(w.living)
    mine, theirs = w.slot(base), w.slot(base, source, w.rng.randrange(WARP))

    def body(count: str) -> None:
        put(w, mine, count)
        w.everybody()
        take(w, theirs)
        w.everybody()

    w.loop(w.trips(), body)


def group(w: Writer) -> None:
    """Some warps synchronise at a barrier with a thread count."""
    roles, number = w.pick(), w.named()
    base, count = w.shared(w.warps * WARP * 4), WARP * len(roles)
    how = w.rng.choice(("bar.sync {}, {};", "barrier.sync {}, {};", "barrier.sync.aligned {}, {};"))
    everybody = len(roles) == len(w.living) and w.rng.random() < 0.7
    how, kind = (how.replace(", {}", ""), "bar") if everybody else (how, "count")

    def members() -> None:
        mine, theirs = w.slot(base), w.slot(base, w.rng.choice(roles), w.rng.randrange(WARP))

        def body(trip: str) -> None:
            put(w, mine, trip)
            w.sync(how.format(number, count), kind)
            take(w, theirs)
            w.sync(how.format(number, count), kind)

        w.loop(w.trips(), body)

    w.only(roles, members)


def hand_over(w: Writer) -> None:
    """Producers arrive, consumers wait; before a slot is refilled, consumers arrive and producers wait."""
    if len(w.living) < 2:
        return exchange(w)
    producers, consumers = two_groups(w)
    full, empty = w.named(), w.named()
    base, count, trips = w.shared(w.warps * WARP * 4), WARP * (len(producers) + len(consumers)), w.trips()
    arrive = w.rng.choice(("bar.arrive", "bar.arrive", "barrier.arrive", "bar.sync"))

    def produce() -> None:
        mine = w.slot(base)

        def body(trip: str) -> None:
            first, go = w.new("%p"), w.new("L")
            w.add(f"setp.eq.u32 {first}, {trip}, 0;", f"@{first} bra {go};")
            w.sync(f"bar.sync {empty}, {count};", "count")
            w.add(f"{go}:")
            put(w, mine, trip)
            w.sync(f"{arrive} {full}, {count};", "count")

        w.loop(trips, body)

    def consume() -> None:
        theirs = w.slot(base, w.rng.choice(producers), w.rng.randrange(WARP))

        def body(trip: str) -> None:
            w.sync(f"bar.sync {full}, {count};", "count")
            take(w, theirs)
            last, done, next_trip = w.new("%p"), w.new("L"), w.new("%r")
            w.add(f"add.u32 {next_trip}, {trip}, 1;")
            w.add(f"setp.ge.u32 {last}, {next_trip}, {trips};", f"@{last} bra {done};")
            w.sync(f"bar.arrive {empty}, {count};", "count")
            w.add(f"{done}:")

        w.loop(trips, body)

    w.only(producers, produce)
    w.only(consumers, consume)
    return None


def lanes(w: Writer) -> None:
    """Lanes diverge, and have loops of different lengths."""
    part, other, join, value = w.new("%p"), w.new("L"), w.new("L"), w.new("%r")
    w.add(f"and.b32 {value}, %r2, {w.rng.choice((1, 3, 5, 16, 31))};")
    w.add(f"setp.lt.u32 {part}, {value}, {w.rng.randint(1, 6)};", f"@{part} bra {other};")
    trips = w.new("%r")
    w.add(f"and.b32 {trips}, %r2, 3;", f"add.u32 {trips}, {trips}, 1;")
    w.loop(trips, lambda count: w.mix(count))
    w.add(f"bra {join};", f"{other}:")
    for _ in range(w.rng.randint(1, 4)):
        arithmetic(w)
    w.add(f"{join}:")


ARITHMETIC = (
    "add.u32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mul.lo.s32 {d}, {a}, {b};", "mul.hi.u32 {d}, {a}, {b};",
    "mul.hi.s32 {d}, {a}, {b};", "and.b32 {d}, {a}, {b};", "or.b32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};",
    "not.b32 {d}, {a};", "neg.s32 {d}, {a};", "abs.s32 {d}, {a};", "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};",
    "shl.b32 {d}, {a}, {n};", "shr.u32 {d}, {a}, {n};", "shr.s32 {d}, {a}, {n};", "popc.b32 {d}, {a};",
    "clz.b32 {d}, {a};", "brev.b32 {d}, {a};", "lop3.b32 {d}, {a}, {b}, %r4, {t};", "cvt.s32.s8 {d}, {a};",
    "cvt.u32.u16 {d}, {a};", "cvt.s32.s16 {d}, {a};", "div.u32 {d}, {a}, {m};", "rem.s32 {d}, {a}, {m};",
    "mad.lo.s32 {d}, {a}, {b}, {b};",
)  # fmt: skip


def arithmetic(w: Writer) -> None:
    """One operation on the thread's accumulated value."""
    rng, target = w.rng, w.new("%r")
    text = rng.choice(ARITHMETIC)
    other = rng.choice(("%r4", "%r2", "%r1", str(rng.randrange(1 << 31)), "-7"))
    w.add(text.format(d=target, a="%r5", b=other, n=rng.randrange(40), t=rng.randrange(256), m=rng.randint(1, 99)))
    compared, chosen = w.new("%p"), w.new("%r")
    how = rng.choice(("lt.s32", "gt.u32", "eq.u32", "le.s32", "ne.b32", "hs.u32"))
    w.add(f"setp.{how} {compared}, {target}, %r4;", f"selp.b32 {chosen}, {target}, %r4, {compared};")
    w.mix(chosen)


def warp_memory(w: Writer) -> None:
    """Lanes of a warp exchange values in shared memory, all of them or those of a mask."""
    base, turn = w.shared(w.warps * WARP * 4), w.rng.randrange(1, WARP)
    some = min(w.rng.choice((32, 32, 8, 16, 5)), w.least)
    mask = (1 << some) - 1

    def body() -> None:
        mine = w.slot(base)
        address, lane = w.new("%r"), w.new("%r")
        w.add(f"add.u32 {lane}, %r2, {turn};", f"rem.u32 {lane}, {lane}, {some};")
        w.add(f"mad.lo.u32 {lane}, %r3, 32, {lane};", f"mov.u32 {address}, {base};")
        w.add(f"mad.lo.u32 {address}, {lane}, 4, {address};")
        for trip in range(w.rng.randint(1, 2)):
            if trip:
                w.sync(f"bar.warp.sync {mask};", "warp")
            put(w, mine)
            w.sync(f"bar.warp.sync {mask};", "warp")
            take(w, address)

    some_lanes_of(w, some, body)


def warp_values(w: Writer) -> None:
    """Shuffles, votes, matches, reductions and elections, of whole warps or of the lanes of a mask."""
    some = min(w.rng.choice((32, 32, 8, 12, 31)), w.least)
    some_lanes_of(w, some, lambda: _warp_value(w, some))


def _warp_value(w: Writer, some: int) -> None:
    rng, mask = w.rng, (1 << some) - 1
    for _ in range(rng.randint(1, 3)):
        value, p, q, small = w.new("%r"), w.new("%p"), w.new("%p"), w.new("%r")
        w.add(f"setp.lt.u32 {p}, %r5, {rng.randrange(1 << 32)};", f"and.b32 {small}, %r5, {rng.choice((0, 1, 3))};")
        lane = w.new("%r")
        w.add(f"add.u32 {lane}, %r2, {rng.randrange(32)};", f"rem.u32 {lane}, {lane}, {some};")
        full = some == WARP
        choices = [
            f"shfl.sync.idx.b32 {value}, %r5, {lane}, 31, {mask};",
            f"vote.sync.ballot.b32 {value}, {p}, {mask};",
            f"vote.sync.{rng.choice(('any', 'all', 'uni'))}.pred {q}, {p}, {mask};\n  selp.u32 {value}, 3, 9, {q};",
            f"match.any.sync.b32 {value}, {small}, {mask};",
            f"redux.sync.{rng.choice(('add', 'min', 'max'))}.{rng.choice(('u32', 's32'))} {value}, %r5, {mask};",
            f"redux.sync.{rng.choice(('and', 'or', 'xor'))}.b32 {value}, %r5, {mask};",
            f"elect.sync {value}|{q}, {mask};",
        ]
        if full:
            segment = rng.choice((0x1F, 0x1F, 0x181F, 0x1C1F))
            how = rng.choice(("bfly", "down"))
            choices.append(f"shfl.sync.{how}.b32 {value}|{q}, %r5, {rng.randrange(1, 16)}, {segment}, -1;")
            choices.append(f"shfl.sync.up.b32 {value}, %r5, {rng.randrange(1, 16)}, {segment & ~31}, -1;")
        w.add(rng.choice(choices))
        w.mix(value)


def atomics(w: Writer) -> None:
    """A cell that one thread sets, all update, and all read; sums in global memory that nobody reads."""
    base, operation = w.shared(16), w.rng.choice(("add.u32", "max.s32", "xor.b32", "and.b32", "min.u32"))
    setter = w.rng.choice(w.living)
    w.only([setter], lambda: w.one_lane(w.rng.randrange(w.least), lambda: w.add(f"st.shared.u32 [{base}], %r1;")))
    w.everybody()
    old, scope = w.new("%r"), w.rng.choice(("", "", "relaxed.cta.", "relaxed.gpu."))
    text = f"red.{scope}shared.{operation} [{base}], %r5;"
    w.add(w.rng.choice((text, f"atom.{scope}shared.{operation} {old}, [{base}], %r5;")))
    w.everybody()
    value = w.new("%r")
    w.add(f"ld.shared.u32 {value}, [{base}];")
    w.mix(value)
    number = w.rng.randrange(COUNTERS)
    kind = ("add.u32", "max.u32", "or.b32", "add.u32")[number % 4]
    w.add(f"red.global.{kind} [%rd2+{4 * number}], %r5;")


def flags(w: Writer) -> None:
    """Each block waits for the previous one, reads its value, and leaves one for the next."""
    first, after, poll, seen = w.new("%p"), w.new("L"), w.new("L"), w.new("%p")
    cell, word, value, strong = w.new("%rd"), w.new("%r"), w.new("%r"), w.rng.random() < 0.5
    role = w.rng.choice(w.living)

    def body() -> None:
        w.add(f"mad.wide.u32 {cell}, %r1, 8, %rd3;", f"mov.u32 {value}, 5;")
        w.add(f"setp.eq.u32 {first}, %r1, 0;", f"@{first} bra {after};")
        w.add(f"{poll}:")
        if strong:
            w.sync(f"ld.acquire.gpu.global.u32 {word}, [{cell}+-4];", "acquire")
        else:
            w.add(f"ld.relaxed.gpu.global.u32 {word}, [{cell}+-4];")
        w.add(f"setp.eq.u32 {seen}, {word}, 0;", f"@{seen} bra {poll};")
        if not strong:
            w.sync("fence.acq_rel.gpu;", "fence")
        w.add(f"ld.global.u32 {value}, [{cell}+-8];")
        w.mix(value)
        w.add(f"{after}:", f"st.global.u32 [{cell}], %r5;")
        if strong:
            w.sync(f"st.release.gpu.global.u32 [{cell}+4], 1;", "release")
        else:
            w.sync("fence.acq_rel.gpu;", "fence")
            w.add(f"st.relaxed.gpu.global.u32 [{cell}+4], 1;")

    w.only([role], lambda: w.one_lane(0, body))


def leave(w: Writer) -> None:
    """Warps of some roles exit."""
    if len(w.living) < 2:
        return arithmetic(w)
    going = sorted(w.rng.sample(w.living, w.rng.randint(1, max(1, len(w.living) - 2))))
    here = w.holds(going)
    address = w.new("%rd")
    w.add(f"@{here} mad.wide.u32 {address}, %r4, 4, %rd0;", f"@{here} st.global.u32 [{address}], %r5;")
    w.add(f"@{here} exit;")
    w.living = [role for role in w.living if role not in going]
    return None


def local_memory(w: Writer) -> None:
    """Every thread fills a local array, at indices that differ between lanes, and reads some of it."""
    words, base = w.rng.choice((4, 8, 16)), w.local(64)
    address, index, value = w.new("%r"), w.new("%r"), w.new("%r")
    trips = w.new("%r")
    w.add(f"mov.u32 {trips}, {words};")

    def fill(count: str) -> None:
        w.add(f"add.u32 {index}, {count}, %r2;", f"rem.u32 {index}, {index}, {words};", f"mov.u32 {address}, {base};")
        w.add(f"mad.lo.u32 {address}, {index}, 4, {address};", f"xor.b32 {value}, %r5, {count};")
        w.add(f"st.local.u32 [{address}], {value};")

    def read() -> None:
        w.add(f"rem.u32 {index}, %r5, {words};", f"mov.u32 {address}, {base};")
        w.add(f"mad.lo.u32 {address}, {index}, 4, {address};", f"ld.local.u32 {value}, [{address}];")
        w.mix(value)

    w.loop(trips, fill)
    some_lanes_of(w, w.rng.choice((32, 20, 3)), read)
    w.add(f"ld.local.u32 {value}, [{base}+{4 * w.rng.randrange(words)}];")
    w.mix(value)


def lanes_leave(w: Writer) -> None:
    """After a barrier some lanes of some warps exit; the others synchronise again, and read what was written before.

    No segment that needs whole warps may follow.
    """
    if w.least < 2:
        return local_memory(w)
    base, gone = w.shared(w.warps * WARP * 4), w.new("%p")
    mine, theirs = w.slot(base), w.slot(base, w.rng.choice(w.living), w.rng.randrange(WARP))
    put(w, mine)
    w.everybody()
    here, address = w.holds(w.pick()), w.new("%rd")
    w.add(f"setp.lt.u32 {gone}, %r2, {w.rng.randrange(1, w.least)};", f"and.pred {gone}, {gone}, {here};")
    w.add(f"@{gone} mad.wide.u32 {address}, %r4, 4, %rd0;", f"@{gone} st.global.u32 [{address}], %r5;")
    w.add(f"@{gone} exit;")
    w.everybody()
    take(w, theirs)
    return None
