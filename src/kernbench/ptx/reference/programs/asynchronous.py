"""Segments of random programs: mbarriers and copies."""

from kernbench.ptx.reference.programs.writer import BULK, TABLE, WARP, Writer, put, take, two_groups


def _wait(w: Writer, barrier: str, parity: str) -> None:
    done, head = w.new("%p"), w.new("L")
    text = f"{head}:\n  mbarrier.try_wait.parity.shared.b64 {done}, [{barrier}], {parity};\n  @!{done} bra {head};"
    w.sync(text, "wait")


def _arrive(w: Writer, barrier: str, elected: bool) -> None:
    """Arrivals of all lanes of a warp, or of one lane for its warp."""
    state = w.new("%rd")
    if not elected:
        w.sync(f"mbarrier.arrive.shared.b64 {state}, [{barrier}];", "arrive")
        return
    w.sync("bar.warp.sync -1;", "warp")
    lane = min(w.rng.choice((0, 0, 7)), w.least - 1)
    w.one_lane(lane, lambda: w.sync(f"mbarrier.arrive.shared.b64 {state}, [{barrier}];", "arrive"))


def make_mbarriers(w: Writer, counts: list[int], fixed: bool = True) -> list[str]:
    """mbarriers that one thread initialises for all, then a barrier that is `fixed`, or may be changed."""
    names = [w.shared(8, 8) for _ in counts]

    def init() -> None:
        for name, count in zip(names, counts, strict=True):
            w.add(f"mbarrier.init.shared.b64 [{name}], {count};")
        w.add("fence.mbarrier_init.release.cluster;")

    w.only([w.rng.choice(w.living)], lambda: w.one_lane(0, init))
    if fixed:
        w.add("barrier.sync 0;")
    else:
        w.everybody()
    return names


def _odd(w: Writer, trip: str, before: int = 0) -> str:
    parity = w.new("%r")
    w.add(f"sub.u32 {parity}, {trip}, {before};", f"and.b32 {parity}, {parity}, 1;")
    return parity


def mbarriers(w: Writer) -> None:
    """Producers and consumers with mbarriers, in several rounds."""
    if len(w.living) < 2:
        return same_warp(w)
    producers, consumers = two_groups(w)
    one_for_all, one_for_each = w.rng.random() < 0.5, w.rng.random() < 0.5
    counts = [
        len(producers) if one_for_all else w.threads(*producers),
        len(consumers) if one_for_each else w.threads(*consumers),
    ]
    full, empty = make_mbarriers(w, counts, fixed=False)
    base, trips = w.shared(w.warps * WARP * 4), w.trips()

    def produce() -> None:
        mine = w.slot(base)

        def body(trip: str) -> None:
            first, go = w.new("%p"), w.new("L")
            w.add(f"setp.eq.u32 {first}, {trip}, 0;", f"@{first} bra {go};")
            _wait(w, empty, _odd(w, trip, 1))
            w.add(f"{go}:")
            put(w, mine, trip)
            _arrive(w, full, one_for_all)

        w.loop(trips, body)

    def consume() -> None:
        theirs = w.slot(base, w.rng.choice(producers), w.rng.randrange(WARP))

        def body(trip: str) -> None:
            _wait(w, full, _odd(w, trip))
            take(w, theirs)
            last, done, next_trip = w.new("%p"), w.new("L"), w.new("%r")
            w.add(f"add.u32 {next_trip}, {trip}, 1;")
            w.add(f"setp.ge.u32 {last}, {next_trip}, {trips};", f"@{last} bra {done};")
            _arrive(w, empty, one_for_each)
            w.add(f"{done}:")

        w.loop(trips, body)

    w.only(producers, produce)
    w.only(consumers, consume)
    return None


def same_warp(w: Writer) -> None:
    """One lane writes and arrives, and its whole warp waits."""
    roles = [w.rng.choice(w.living)]
    (ready,) = make_mbarriers(w, [1])
    cell, state = w.shared(16), w.new("%rd")

    def write() -> None:
        w.add(f"st.shared.u32 [{cell}], %r4;")
        w.sync(f"mbarrier.arrive.shared.b64 {state}, [{ready}];", "arrive")

    def body() -> None:
        w.one_lane(w.rng.randrange(w.least), write)
        _wait(w, ready, "0")
        take(w, cell)

    w.only(roles, body)


def some_lanes(w: Writer) -> None:
    """Some lanes of a warp write and synchronise, one of them arrives for all, and other warps wait."""
    writer, readers, some = w.rng.choice(w.living), w.pick(), min(w.rng.choice((5, 8, 16)), w.least)
    (ready,) = make_mbarriers(w, [1])
    base, state = w.shared(w.warps * WARP * 4), w.new("%rd")

    def write() -> None:
        outside, after = w.new("%p"), w.new("L")
        mine = w.slot(base)
        w.add(f"setp.ge.u32 {outside}, %r2, {some};", f"@{outside} bra {after};")
        put(w, mine)
        w.sync(f"bar.warp.sync {(1 << some) - 1};", "warp")
        w.one_lane(w.rng.randrange(some), lambda: w.sync(f"mbarrier.arrive.shared.b64 {state}, [{ready}];", "arrive"))
        w.add(f"{after}:")

    def read() -> None:
        theirs, lane, own = w.slot(base, writer), w.new("%r"), "%r2"
        if w.threads(writer) < WARP:
            own = w.new("%r")
            w.add(f"rem.u32 {own}, %r2, {w.threads(writer)};")
        w.add(f"rem.u32 {lane}, %r2, {some};", f"sub.u32 {lane}, {lane}, {own};", f"shl.b32 {lane}, {lane}, 2;")
        w.add(f"add.u32 {theirs}, {theirs}, {lane};")
        _wait(w, ready, "0")
        take(w, theirs)

    w.only([writer], write)
    w.only(readers, read)


def relay(w: Writer) -> None:
    """One lane waits for an mbarrier, and its warp passes that knowledge on at a barrier."""
    if len(w.living) < 2:
        return same_warp(w)
    first, second = two_groups(w)
    middle, readers = [first[0]], second
    writer = w.rng.choice(w.living)
    (ready,) = make_mbarriers(w, [1])
    cell, state, number = w.shared(16), w.new("%rd"), w.named()
    count, lane = WARP * (1 + len(readers)), w.rng.randrange(w.least)

    def write() -> None:
        w.add(f"st.shared.u32 [{cell}], %r4;")
        w.sync(f"mbarrier.arrive.shared.b64 {state}, [{ready}];", "arrive")

    def hand_on() -> None:
        w.one_lane(lane, lambda: _wait(w, ready, "0"))
        w.sync(f"{w.rng.choice(('bar.arrive', 'bar.sync'))} {number}, {count};", "count")

    def read() -> None:
        w.sync(f"bar.sync {number}, {count};", "count")
        take(w, cell)

    w.only([writer], lambda: w.one_lane(w.rng.randrange(w.least), write))
    w.only(middle, hand_on)
    w.only(readers, read)
    return None


def copies(w: Writer) -> None:
    """cp.async of every thread in groups; after the wait others read the results."""
    size = w.rng.choice((4, 8, 16))
    base, groups = w.shared(w.warps * WARP * size), w.rng.randint(1, 2)
    more = w.shared(w.warps * WARP * size)
    kind = "cg" if size == 16 else "ca"
    for number in range(groups):
        mine, index, source = w.slot((base, more)[number], size=size), w.new("%r"), w.new("%rd")
        w.add(f"add.u32 {index}, %r4, {w.rng.randrange(64)};", f"rem.u32 {index}, {index}, {TABLE * 4 // size};")
        w.add(f"mad.wide.u32 {source}, {index}, {size}, %rd1;")
        w.add(f"cp.async.{kind}.shared.global [{mine}], [{source}], {size}{_limit(w, size)};")
        w.add("cp.async.commit_group;")
    for number in range(groups):
        w.sync(f"cp.async.wait_group {groups - 1 - number};", "copied")
        w.everybody()
        take(w, w.slot((base, more)[number], w.rng.choice(w.living), w.rng.randrange(WARP), size))


def _limit(w: Writer, size: int) -> str:
    """The src-size or ignore-src operand of a cp.async: none, a number, a register, or a predicate."""
    way, predicate = w.rng.randrange(5), w.new("%p")
    if way == 0:
        return ""
    if way == 1:
        return f", {w.rng.randrange(size + 1)}"
    w.add(f"setp.lt.u32 {predicate}, %r2, {w.rng.randrange(WARP + 1)};")
    if way == 2:
        left = w.new("%r")
        w.add(f"selp.u32 {left}, {w.rng.randrange(size + 1)}, {size}, {predicate};")
        return f", {left}"
    return f", {predicate}" if way == 3 else f", !{predicate}"


def arriving_copies(w: Writer) -> None:
    """cp.async of some warps, each thread of which arrives on an mbarrier when its copies are done; others wait."""
    producers, consumers = w.pick(), w.pick()
    alone = w.rng.random() < 0.5
    (ready,) = make_mbarriers(w, [w.threads(*producers)])
    size = w.rng.choice((4, 8, 16))
    base, state = w.shared(w.warps * WARP * size), w.new("%rd")

    def copy() -> None:
        mine, index, source = w.slot(base, size=size), w.new("%r"), w.new("%rd")
        w.add(f"add.u32 {index}, %r4, {w.rng.randrange(64)};", f"rem.u32 {index}, {index}, {TABLE * 4 // size};")
        w.add(f"mad.wide.u32 {source}, {index}, {size}, %rd1;")
        w.add(f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [{mine}], [{source}], {size};")
        text = f"cp.async.mbarrier.arrive.noinc.shared.b64 [{ready}];"
        if not alone:
            # both must stay in this order: otherwise the phase that counts them depends on the order of threads
            text = text.replace(".noinc", "") + f"\n  mbarrier.arrive.shared.b64 {state}, [{ready}];"
        w.sync(text, "arrive")

    def read() -> None:
        _wait(w, ready, "0")
        take(w, w.slot(base, w.rng.choice(producers), w.rng.randrange(WARP), size))

    w.only(producers, copy)
    w.only(consumers, read)


def bulk(w: Writer) -> None:
    """One thread copies a table to shared memory; warps wait for its bytes, change them, and copy them back."""
    readers, leader = w.pick(), w.rng.choice(w.living)
    (ready,) = make_mbarriers(w, [1])
    base, nbytes, number = w.shared(BULK), BULK, w.named()
    state, source, target = w.new("%rd"), w.new("%rd"), w.new("%rd")

    def begin() -> None:
        start = w.rng.randrange(0, TABLE * 4 - BULK, 16)
        w.add(f"add.u64 {source}, %rd1, {start};")
        w.sync(f"mbarrier.arrive.expect_tx.shared.b64 {state}, [{ready}], {nbytes};", "expect")
        form = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        w.add(f"{form} [{base}], [{source}], {nbytes}, [{ready}];")

    def read() -> None:
        _wait(w, ready, "0")
        address = w.new("%r")
        w.add(f"mov.u32 {address}, {base};", f"mad.lo.u32 {address}, %r2, 4, {address};")
        take(w, address)
        w.sync(f"bar.sync {number}, {WARP * len(readers)};", "count")
        w.only([readers[0]], lambda: w.add(f"st.shared.u32 [{address}], %r5;"))
        w.sync("fence.proxy.async;", "proxy")
        w.sync(f"bar.sync {number}, {WARP * len(readers)};", "count")
        w.only([readers[-1]], lambda: w.one_lane(0, write_back))

    def write_back() -> None:
        first = w.area_for_copy(readers[-1]) * w.grid * BULK
        w.add(f"mad.wide.u32 {target}, %r1, {BULK}, %rd4;", f"add.u64 {target}, {target}, {first};")
        w.add(f"cp.async.bulk.global.shared::cta.bulk_group [{target}], [{base}], {nbytes};")
        w.add("cp.async.bulk.commit_group;")
        w.add("cp.async.bulk.wait_group 0;")

    w.only([leader], lambda: w.one_lane(w.rng.randrange(w.least), begin))
    w.only(readers, read)
