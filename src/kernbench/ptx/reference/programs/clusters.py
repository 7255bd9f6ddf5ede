"""Segments of random programs: blocks of a cluster that hand values to each other."""

from kernbench.ptx.reference.programs.asynchronous import make_mbarriers
from kernbench.ptx.reference.programs.writer import WARP, Writer, take


def meet(w: Writer) -> None:
    """All threads of a cluster meet."""
    w.sync("barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;", "cluster")


def _wait(w: Writer, barrier: str) -> None:
    done, head = w.new("%p"), w.new("L")
    form = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
    w.sync(f"{head}:\n  {form} {done}, [{barrier}], 0;\n  @!{done} bra {head};", "wait")


def ring(w: Writer) -> None:
    """A warp of each block sends words to the next one of its cluster, twice: counted stores, then ordinary ones.

    An mbarrier there counts the bytes of the first; the second come when all have said that they have read those.
    """
    role = w.rng.choice(w.living)
    threads = w.threads(role)
    full, read = make_mbarriers(w, [1, threads])
    base, state = w.shared(WARP * 4), w.new("%rd")
    rank, address, there, value, turned = (w.new("%r") for _ in range(5))
    full_there, read_there = w.new("%r"), w.new("%r")
    w.add(f"mov.u32 {rank}, %cluster_ctarank;", f"xor.b32 {rank}, {rank}, 1;", f"mov.u32 {address}, {base};")
    w.add(f"add.u32 {turned}, %r2, {w.rng.randrange(WARP)};", f"rem.u32 {turned}, {turned}, {threads};")
    w.add(f"mad.lo.u32 {turned}, {turned}, 4, {address};", f"mad.lo.u32 {address}, %r2, 4, {address};")
    for target, source in ((there, address), (full_there, full), (read_there, read)):
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
