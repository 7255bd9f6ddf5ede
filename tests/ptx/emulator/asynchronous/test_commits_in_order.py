"""Commits of a thread arrive in its order: who has seen a later one knows that the phase of an earlier one is over."""

import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds
from tests.ptx.emulator.asynchronous.tcgen05 import idesc, kernel, launch, load, mma, tiles

KINDS = ("f32", "f16", "f16")
MULTIPLY = mma("f16")
# the barrier that is waited for in its second phase only, and the one that is seen before
EARLY, DONE = (
    f"  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{name}];\n"
    for name in ("early", "done")
)
BARRIERS = {
    ".shared .align 8 .b64 done;": "\n".join(f".shared .align 8 .b64 {name};" for name in ("done", "early", "back")),
    "  @%p3 mbarrier.init.shared::cta.b64 [done], 1;\n": "".join(
        f"  @%p3 mbarrier.init.shared::cta.b64 [{name}], 1;\n" for name in ("done", "early", "back")
    ),
}


def wait(name, parity):
    label = f"WAIT_{name}_{parity}"
    return f"{label}:\n  mbarrier.try_wait.parity.shared::cta.b64 %p4, [{name}], {parity};\n  @!%p4 bra {label};\n"


def body(first, also=""):
    """Thread 0 runs `first`, and commits to `early` again when thread 32 has seen `done`; thread 32 waits for that.

    Thread 32 runs `also` before it tells thread 0, and again behind it.
    """
    return f"""
  setp.eq.u32 %p6, %r0, 32;
  @%p3 bra MULTIPLY;
  @%p6 bra SEE;
  bra BOTH;
MULTIPLY:
{first}{wait("back", 0)}{MULTIPLY}{EARLY}  bra BOTH;
SEE:
{wait("done", 0)}{also}  mbarrier.arrive.shared::cta.b64 _, [back];
{also}{wait("early", 1)}  tcgen05.fence::before_thread_sync;
BOTH:
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
{load(8)}"""


def run(first, schedule, also=""):
    _, _, data, descriptors = tiles(1, 128, 8, 16, KINDS, "none", "none")
    counts = {"init.shared::cta.b64 [early], 1;": "init.shared::cta.b64 [early], 2;"} if also else {}
    code = kernel(body(first, also), 8, changes=BARRIERS | counts)
    return launch(code, data, descriptors, idesc(128, 8, KINDS), 8, schedule=schedule)[0]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
def test_a_later_commit_was_seen(schedule):
    assert run(MULTIPLY + EARLY + MULTIPLY + DONE, schedule).findings == []


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
@pytest.mark.parametrize("between", ["", MULTIPLY], ids=["nothing between", "a product between"])
def test_an_earlier_commit_says_nothing(between, schedule):
    found = run(MULTIPLY + DONE + between + EARLY, schedule)
    assert set(kinds(found)) == {"mbarrier-phase"}
    assert any("nothing says that phase 0 is over by then" in finding.message for finding in found.findings)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
def test_a_phase_of_a_commit_and_a_threads_arrival(schedule):
    also = "  mbarrier.arrive.shared::cta.b64 _, [early];\n"
    assert run(MULTIPLY + EARLY + MULTIPLY + DONE, schedule, also).findings == []
    assert set(kinds(run(MULTIPLY + DONE + MULTIPLY + EARLY, schedule, also))) == {"mbarrier-phase"}
