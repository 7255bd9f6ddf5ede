"""Segments of random programs in which blocks of a cluster pass values to each other."""

from kernbench.ptx.reference.programs.asynchronous import make_mbarriers
from kernbench.ptx.reference.programs.writer import BULK, TABLE, WARP, Writer, put, some_lanes_of, take


def meet(w: Writer) -> None:
    """Synchronise all threads of a cluster."""
    w.sync("barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;", "cluster")


def _wait(w: Writer, barrier: str) -> None:
    done, head = w.new("%p"), w.new("L")
    form = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
    w.sync(f"{head}:\n  {form} {done}, [{barrier}], 0;\n  @!{done} bra {head};", "wait")


def _neighbour(w: Writer, blocks: int, steps: int) -> str:
    """The rank of the block that many steps further in the cluster, cyclically."""
    rank = w.new("%r")
    w.add(
        f"mov.u32 {rank}, %cluster_ctarank;", f"add.u32 {rank}, {rank}, {steps};", f"rem.u32 {rank}, {rank}, {blocks};"
    )
    return rank


def ring(w: Writer, blocks: int) -> None:
    """A warp of each block sends words to the next block of its cluster, twice: by counted, then by ordinary stores.

    An mbarrier of the receiver counts the bytes of the first; the second follow when all threads of the receiver have
    arrived, at an mbarrier of the sender, after reading the first.
    """
    role = w.rng.choice(w.living)
    threads = w.threads(role)
    full, read = make_mbarriers(w, [1, threads])
    base, state = w.shared(WARP * 4), w.new("%rd")
    address, there, value, turned, full_there, read_there = (w.new("%r") for _ in range(6))
    onward, back = _neighbour(w, blocks, 1), _neighbour(w, blocks, blocks - 1)
    w.add(f"mov.u32 {address}, {base};")
    w.add(f"add.u32 {turned}, %r2, {w.rng.randrange(WARP)};", f"rem.u32 {turned}, {turned}, {threads};")
    w.add(f"mad.lo.u32 {turned}, {turned}, 4, {address};", f"mad.lo.u32 {address}, %r2, 4, {address};")
    for target, source, rank in ((there, address, onward), (full_there, full, onward), (read_there, read, back)):
        w.add(f"mapa.shared::cluster.u32 {target}, {source}, {rank};")
    meet(w)

    def expect() -> None:
        w.add(f"mbarrier.arrive.expect_tx.shared.b64 {state}, [{full}], {4 * threads};")

    def exchange() -> None:
        w.one_lane(w.rng.randrange(w.least), expect)
        w.add(f"xor.b32 {value}, %r5, {w.rng.randrange(1 << 16)};")
        form = "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32"
        w.add(f"{form} [{there}], {value}, [{full_there}];")
        _wait(w, full)
        take(w, turned)
        w.sync(f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{read_there}];", "arrive")
        _wait(w, read)
        w.add(f"st.shared::cluster.u32 [{there}], %r5;")

    w.only([role], exchange)
    meet(w)
    w.only([role], lambda: take(w, turned))


def collect(w: Writer, blocks: int) -> None:
    """A warp of each block updates words of one block of its cluster, whose mbarrier counts the bytes.

    The words are initialised by ordinary stores, which such updates see without a proxy fence.
    """
    role, leader = w.rng.choice(w.living), w.rng.randrange(blocks)
    threads, words = w.threads(role), w.rng.choice((1, 4, WARP))
    (full,) = make_mbarriers(w, [1])
    base, state, listens = w.shared(WARP * 4), w.new("%rd"), w.new("%p")
    address, there, value, full_there, rank = (w.new("%r") for _ in range(5))
    w.add(f"mov.u32 {address}, {base};", f"and.b32 {rank}, %r2, {words - 1};")
    w.add(f"mad.lo.u32 {address}, {rank}, 4, {address};", f"mov.u32 {rank}, {leader};")
    for target, source in ((there, address), (full_there, full)):
        w.add(f"mapa.shared::cluster.u32 {target}, {source}, {rank};")
    w.add(f"mov.u32 {rank}, %cluster_ctarank;", f"setp.eq.u32 {listens}, {rank}, {leader};")
    w.only([role], lambda: some_lanes_of(w, words, lambda: put(w, address)))
    meet(w)
    operation = w.rng.choice(("add.u32", "add.s32", "min.u32", "max.s32", "xor.b32", "and.b32", "or.b32"))

    def update() -> None:
        def expect() -> None:
            w.add(f"@{listens} mbarrier.arrive.expect_tx.shared.b64 {state}, [{full}], {4 * threads * blocks};")

        w.one_lane(w.rng.randrange(w.least), expect)
        w.add(f"xor.b32 {value}, %r5, {w.rng.randrange(1 << 16)};")
        form = "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster"
        w.add(f"{form}.{operation} [{there}], {value}, [{full_there}];")
        over = w.new("L")
        w.add(f"@!{listens} bra {over};")
        _wait(w, full)
        take(w, address)
        w.add(f"{over}:")

    w.only([role], update)
    meet(w)


def multicast(w: Writer, blocks: int) -> None:
    """A thread of one block copies a piece of the table to blocks of its cluster, whose mbarriers count the bytes."""
    role, leader = w.rng.choice(w.living), w.rng.randrange(blocks)
    chosen = w.rng.randrange(1, 1 << blocks)
    (full,) = make_mbarriers(w, [1])
    base, state, source = w.shared(BULK), w.new("%rd"), w.new("%rd")
    address, mask, leads, listens = w.new("%r"), w.new("%r"), w.new("%p"), w.new("%p")
    rank = _neighbour(w, blocks, 0)
    w.add(f"mov.u32 {address}, {base};", f"mad.lo.u32 {address}, %r2, 4, {address};")
    w.add(
        f"setp.eq.u32 {leads}, {rank}, {leader};", f"shr.u32 {mask}, {chosen}, {rank};", f"and.b32 {mask}, {mask}, 1;"
    )
    w.add(f"setp.eq.u32 {listens}, {mask}, 1;", f"add.u64 {source}, %rd1, {w.rng.randrange(0, TABLE * 4 - BULK, 16)};")
    meet(w)

    def begin() -> None:
        w.add(f"@{listens} mbarrier.arrive.expect_tx.shared.b64 {state}, [{full}], {BULK};")
        form = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        w.add(f"@{leads} {form} [{base}], [{source}], {BULK}, [{full}], {chosen};")

    def read() -> None:
        w.one_lane(w.rng.randrange(w.least), begin)
        over = w.new("L")
        w.add(f"@!{listens} bra {over};")
        _wait(w, full)
        take(w, address)
        w.add(f"{over}:")

    w.only([role], read)
    meet(w)
