"""Methods called with anything: what cannot be is refused, and what is built is PTX."""

import inspect
import random

import pytest

from kernbench import ptx
from kernbench.ptx.builder import Context, PtxBuildError, PtxKernel

# what is no instruction, or leaves the kernel
APART = {
    "body",
    "issue",
    "typed",
    "move",
    "last_if",
    "close",
    "lanes",
    "common_type",
    "needs_register",
    "error",
    "condition",
}
APART |= {
    "element_address",
    "location_and_type",
    "store_param",
    "load_param",
    "bra",
    "place",
    "label",
    "ret",
    "exit",
    "trap",
}
APART |= {"break_", "continue_", "return_", "call", "reg"}
NAMES = sorted(name for name in dir(Context) if not name.startswith("_") and name not in APART)
KEYWORDS = (
    "out",
    "pred",
    "mask",
    "type",
    "vec",
    "other",
    "rnd",
    "ftz",
    "sat",
    "sem",
    "scope",
    "cop",
    "pair",
    "width",
    "index",
)


def things(ctx):
    n, s, x = ctx.param("n"), ctx.param("s"), ctx.pointer("x", "f32")
    p = n < 3
    plain = [None, 1.5, "x", "f32", "u32", "lo", -1, 0, 7, 10**30, True, float("nan"), b"x", (), (1, 2), {}, object()]
    return [*plain, n, s, p, p.inverted, s.to("f16"), ctx.param("x"), x, x[3], ctx.shared("f32", 4), (s, s), [n] * 4]


def attempts(ctx, draw, tally):
    pool = things(ctx)
    for _ in range(60):
        method = getattr(ctx, draw.choice(NAMES))
        if not callable(method):
            continue
        wanted = [p for p in inspect.signature(method).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        least = sum(p.default is p.empty for p in wanted)
        values = [draw.choice(pool) for _ in range(draw.randint(least, len(wanted)))]
        named = {key: draw.choice(pool) for key in draw.sample(KEYWORDS, draw.choice((0, 0, 1)))}
        try:
            opened = method(*values, **named)
            if hasattr(opened, "__enter__"):
                with opened:
                    pass
        except PtxBuildError as error:
            tally.append("refused" if error.where.file == __file__ else f"refused at {error.where}")
        except TypeError:
            # Python's own: a missing argument, or one that is no sequence
            continue
        else:
            tally.append("taken")


@pytest.mark.parametrize("seed", range(4))
def test_anything(seed):
    draw, tally = random.Random(seed), []
    for _ in range(5):
        kernel = PtxKernel("k").param("u64", "x").param("u32", "n").param("f32", "s").shared_memory(64)
        try:
            built = kernel.build(lambda ctx: attempts(ctx, draw, tally))
        except PtxBuildError:
            continue
        assert ptx.parse(built.emit()).kernels["k"].emit() == built.emit()
    assert {word for word in tally if word not in ("taken", "refused")} == set()
    assert tally.count("taken") > 5
    assert tally.count("refused") > 50


def test_a_method_that_is_not_there_is_told_with_the_one_that_was_meant():
    def program(ctx):
        assert not hasattr(ctx, "maximum_of_all")
        ctx.shfl_bfyl(ctx.param("s"), 1, mask=1)

    told = r"unknown method of the context 'shfl_bfyl'.*mean 'shfl_bfly'.*ctx\.op"
    with pytest.raises(PtxBuildError, match=told) as raised:
        PtxKernel("k").param("f32", "s").build(program)
    assert "ctx.shfl_bfyl" in str(raised.value)
