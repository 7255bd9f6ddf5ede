"""Products that come one after the other are performed together: tensor memory holds the same bits as one by one."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import TCGEN05_CODES, descriptor
from tests.ptx.emulator.asynchronous.tcgen05 import idesc

from kernbench.ptx.emulator.asynchronous.agents import Agent, Agents
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import Form, Products, TensorCore
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.fast_paths import ALL
from kernbench.ptx.emulator.memory.arena import views
from kernbench.ptx.numerics.matrix.instruction import Part

CTAS, STRIDE = 3, 32 << 10
KINDS = {"f16": ("f16", "f16"), "bf16": ("f16", "bf16"), "tf32": ("tf32", "tf32"), "e4m3": ("f8f6f4", "e4m3")}


def core(random):
    """A tensor core with something in shared and in tensor memory."""
    shared = random.integers(0, 256, CTAS * STRIDE, dtype=np.uint8)
    space = SimpleNamespace(words=views(shared))
    port = SimpleNamespace(space=lambda name: space)
    batch = SimpleNamespace(ctas=CTAS, shared_stride=STRIDE, port=port, launch=SimpleNamespace(fast=ALL))
    memory = TensorMemory(batch)
    memory.words[...] = random.integers(0, 1 << 32, memory.words.shape, dtype=np.uint32)
    return TensorCore(batch, memory), memory


def operations(random, form, kind, some):
    """One instruction for some CTAs, which as a rule give it the same operands, and which may lie beyond the end."""
    transposed = tuple(bool(one) and kind in ("f16", "bf16") for one in random.integers(0, 2, 2))
    given = np.empty((5, len(some)), np.uint64)
    sides = [
        descriptor(16 * int(random.integers(0, STRIDE // 16)), 256, 512, TCGEN05_CODES[mode], True)
        for mode in random.choice(["none", "32B", "128B"], 2)
    ]
    columns, adds = int(random.choice([0, 64, 480])), int(random.random() < 0.8)
    bits = idesc(128, int(random.choice([8, 64])), ("f32", kind, kind), transposed, (random.random() < 0.1, False))
    given[:] = np.array([columns, *sides, bits, adds], np.uint64)[:, None]
    if random.random() < 0.1:
        given[1, 0] += np.uint64(1)
    return Products(form, some, given)


def program(random):
    """Some instructions, of which most go on with the sums of the one before."""
    made = []
    while len(made) < 12:
        kind = str(random.choice(list(KINDS)))
        some = np.arange(CTAS) if random.random() < 0.7 else np.array([0, 2])
        first = operations(random, Form(f"kind::{KINDS[kind][0]}", False, False, False, False, 0, None), kind, some)
        for _ in range(int(random.integers(1, 5))):
            form = Form(first.form.kind, False, False, False, False, 0, None)
            other = operations(random, form, kind, some)
            given = first.given.copy()
            given[1:3] = other.given[1:3]
            given[4] |= len(made) and random.random() < 0.9
            made.append(Products(form, some, given))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_together_as_one_by_one(seed):
    several = program(np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        (whole, words), (single, others) = (core(np.random.default_rng(99)) for _ in range(2))
        whole.multiply(several)
        whole.flush()
        for one in several:
            single.multiply([Products(one.form, one.ctas, one.given)])
        single.flush()
    assert (words.words == others.words).all()


def test_agents_that_follow_each_other_are_performed_by_one_call():
    agents, log = Agents(SimpleNamespace(journal=None, launch=SimpleNamespace(fast=ALL))), []

    def together(several):
        log.append(several)

    def agent(work, joined, noting=None):
        one = Agent("tensor", None, np.arange(2), lambda chosen: log.append((work, chosen.tolist())))
        one.together, one.work, one.noting = together if joined else None, work, noting
        agents.begin(one)

    agent("a", True, lambda chosen: log.append(("noted", chosen.tolist())))
    agent("b", True)
    agent("c", False)
    agent("d", True)
    agent("e", False)
    assert agents.drain()
    assert log == [("noted", [0, 1]), ["a", "b"], ("c", [0, 1]), ("d", [0, 1]), ("e", [0, 1])]
    assert not agents.drain()


@pytest.mark.parametrize("how", ["nothing", "write", "add"])
def test_new_columns_are_poison_whatever_was_there_before(how):
    memory, part = TensorMemory(SimpleNamespace(ctas=2)), Part((0, 4), (0, 32), (0, 64))
    if how == "write":
        memory.write(np.array([1]), part, 0, np.ones((1, 128, 64), np.uint32))
    elif how == "add":
        with np.errstate(all="ignore"):
            assert memory.add(np.array([0, 1]), part, 0, np.ones((2, 128, 64), np.float32))
    assert memory.allocate(1, 32, None) == 0
    assert (memory.words[1, :, :, :32] == 0xFFFFFFFF).all()
    assert memory.touched == (how != "nothing")
