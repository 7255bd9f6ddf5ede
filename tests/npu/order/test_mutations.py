"""Nothing can be left out of the forms of paged attention unseen: it is found, or shown to change no order."""

import numpy as np
import pytest
from tests.npu.mutations import FOUND, SAME, judge_rows, judge_runtime
from tests.npu.paged import FORMS, launch, problem
from tests.npu.small import flag

from kernbench import npu

CHIP = npu.Chip("a2a3")


@pytest.mark.parametrize("form", FORMS)
def test_every_flag_and_barrier_of_every_round(form):
    counts, silent = judge_rows(launch(form, problem([33])), CHIP)
    assert silent == []
    assert counts["set", SAME] == counts["wait", SAME] == 0
    assert min(counts[name, FOUND] for name in ("set", "wait", "barrier", "flag, both ends")) >= 40


@pytest.mark.parametrize("form", FORMS)
def test_every_dependence_and_direction(form):
    arguments = problem([17])
    counts, silent = judge_runtime(lambda: launch(form, arguments), CHIP)
    assert silent == []
    # out as INOUT has no earlier writers to wait for
    assert counts["direction", SAME] == 1
    assert counts["direction", FOUND] >= 11
    assert counts["dependence", FOUND] >= (9 if form == "staged" else 0)


def digest_of(*steps, manual=False):
    """The digest of a kernel that loads, computes and stores, with these steps between."""

    def kernel(core, x, out):
        a, b = core.tile("UB", (8, 8), offset=0), core.tile("UB", (8, 8), offset=256)
        core.tload(a, x)
        steps[0](core)
        core.tmuls(b, a, 2.0)
        steps[1](core)
        core.tstore(out, b)
        core.pipe_sync()

    def orchestrate(rt, x, out):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.OUT(out)])

    x = np.ones((8, 8), np.float32)
    return CHIP.order_digest(CHIP.launch(orchestrate, x, x))


def test_the_digest_is_of_the_order_and_not_of_what_makes_it():
    def first(core):
        flag(core, "MTE2", "V")

    def last(core):
        flag(core, "V", "MTE3")

    def everything(core):
        core.pipe_barrier("ALL")

    def twice(core):
        first(core)
        core.set_flag("MTE2", "V", 1)
        core.wait_flag("MTE2", "V", 1)

    wanted = digest_of(first, last)
    assert digest_of(first, last) == digest_of(twice, last) == digest_of(everything, everything) == wanted
    nothing = lambda core: None  # noqa: E731
    others = [digest_of(nothing, last), digest_of(first, nothing), digest_of(nothing, nothing)]
    assert len({wanted, *others}) == 4


def test_the_digest_is_the_same_for_every_order_of_the_run():
    for form in FORMS:
        arguments = problem([33, 17], H=32, kv=2)
        found = {CHIP.order_digest(launch(form, arguments, schedule=s)) for s in ("canonical", "reversed", 1, 2)}
        assert len(found) == 1


def test_the_digest_sees_dependences_between_tasks():
    def fill(core, out):
        tile = core.tile("UB", (8, 8))
        core.texpands(tile, 1.0)
        flag(core, "V", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    def digest(*deps):
        def orchestrate(rt, a, b, c):
            with rt.scope(manual=True):
                tasks = []
                for number, t in enumerate((a, b, c)):
                    after = [tasks[d] for n, d in deps if n == number]
                    tasks.append(rt.submit(aiv0=fill, args=[npu.OUT(t)], deps=after))

        x = np.ones((8, 8), np.float32)
        return CHIP.order_digest(CHIP.launch(orchestrate, x, x, x))

    chain = digest((1, 0), (2, 1))
    assert chain == digest((1, 0), (2, 1), (2, 0))
    assert len({chain, digest((1, 0)), digest(), digest((2, 0), (1, 0))}) == 4
