"""Emitted PTX is stable: the same program gives the same text, and the texts are those of `golden/`.

KERNBENCH_REFRESH=1 writes them anew, to be looked at in the diff.
"""

import os
from pathlib import Path

import pytest
from tests.ptx.builder.samples import SAMPLES

from kernbench import ptx
from kernbench.ptx.builder import PtxKernel, PtxModule

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_text(name):
    text = SAMPLES[name](lines=False).emit()
    file = GOLDEN / f"{name}.ptx"
    if os.environ.get("KERNBENCH_REFRESH"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_kernel_is_built_the_same_each_time(name):
    one, two = SAMPLES[name](), SAMPLES[name]()
    assert one.emit() == two.emit()
    assert ptx.parse(one.emit()).kernels[name].emit() == one.emit()


def test_lines_tell_the_python_line():
    text = SAMPLES["vector_add"]().emit()
    lines = Path(__file__).with_name("samples.py").read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "ctx.store(z[i]" in line)
    assert f'.file 1 "{Path(__file__).with_name("samples.py")}"' in text
    before, _, after = text.partition("add.rn.f32")
    assert before.rstrip().split(".loc ")[-1].startswith(f"1 {number} 1\n")
    assert ".loc" in after


def test_kernels_share_a_module():
    module = PtxModule(target="sm_90a", lines=False)

    def fill(ctx):
        ctx.store(ctx.dynamic_shared("f32"), 1.0, ctx.tid_x)

    for name in ("one", "two"):
        kernel = module.kernel(name).build(fill)
        assert list(kernel.module.kernels) == [name]
    whole = module.build()
    assert list(whole.kernels) == ["one", "two"]
    assert list(whole.variables) == ["dynamic_shared"]
    assert whole.target == ("sm_90a",)


def test_directives_of_a_kernel():
    kernel = PtxKernel("k").reqntid(64, 2).minnctapersm(2).maxnreg(64).cluster(2).build(lambda ctx: None)
    assert kernel.reqntid == (64, 2, 1)
    assert kernel.cluster == (2, 1, 1)
    assert kernel.module.target == ("sm_90",)
    assert ".reqntid 64, 2, 1 .minnctapersm 2 .maxnreg 64 .reqnctapercluster 2, 1, 1" in kernel.emit()


def test_parameters_in_order():
    kernel = (
        PtxKernel("k")
        .param("f16", "h")
        .param("u64", "p")
        .param("b8", "bytes", count=128, align=64)
        .build(lambda ctx: None)
    )
    assert [(p.name, p.type, p.size, p.alignment) for p in kernel.params] == [
        ("h", "f16", 2, 2),
        ("p", "u64", 8, 8),
        ("bytes", "b8", 128, 64),
    ]
