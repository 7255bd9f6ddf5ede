"""Building a program takes work that grows with its instructions, and not with their square."""

from tests.work import work

from kernbench import ptx
from kernbench.ptx.builder import PtxKernel
from kernbench.ptx.emulator.analysis.building import build


def text_of(blocks):
    """A kernel of many short blocks, each behind a branch."""
    parts = "\n".join(f"@%p1 bra $L{n};\nadd.s32 %r1, %r1, {n};\n$L{n}:" for n in range(blocks))
    return (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry kernel()\n{\n"
        f".reg .pred %p<2>;\n.reg .b32 %r<3>;\nmov.u32 %r1, %tid.x;\nsetp.eq.s32 %p1, %r1, 3;\n{parts}\nret;\n}}\n"
    )


def test_a_program_of_many_blocks():
    def building(blocks):
        kernel = ptx.parse(text_of(blocks)).kernels["kernel"]
        return work(lambda: build(kernel))

    building(2)
    assert building(240) < 5 * building(60)


def test_a_builder_of_many_predicates():
    def building(count):
        def program(ctx):
            value = ctx.tid_x.copy()
            for number in range(count):
                with ctx.if_(value > number):
                    value += 1

        return work(lambda: PtxKernel("kernel", lines=False).build(program))

    building(2)
    assert building(320) < 8.5 * building(40)
