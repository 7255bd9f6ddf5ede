"""Random kernels: as many fused and added numbers as in the machine code that ptxas makes of them."""

from collections import Counter

import pytest
from tests import sampled
from tests.ptx.assembled.programs import HEAD, random_kernel
from tests.ptx.sass.tools import needs_tools

from kernbench import ptx
from kernbench.ptx.assembled import assembled
from kernbench.ptx.devices.assembler import assemble
from kernbench.ptx.sass.reading import read
from kernbench.ptx.sass.tools import disassemble, find_nvdisasm
from kernbench.ptx.text.walking import instructions_of

pytestmark = pytest.mark.programs

AT_ONCE = 40


@needs_tools
@pytest.mark.parametrize("part", range(sampled.examples(3, 6)))
def test_random_kernels(part):
    seeds = range(part * AT_ONCE, (part + 1) * AT_ONCE)
    text = HEAD + "".join(random_kernel(seed, f"k{seed}") for seed in seeds)
    listing = read(disassemble(assemble(text, "sm_90").cubin, find_nvdisasm()))
    found: dict[str, Counter[str]] = {f"k{seed}": Counter() for seed in seeds}
    for one in listing.instructions:
        # a change of sign is written as an addition of zero, or a fused one
        if not one.operands.rstrip().endswith("RZ"):
            found[one.section][one.opcode] += 1
    kernels = ptx.parse(text).kernels
    for name, machine in found.items():
        ours = Counter(one.opcode for one in instructions_of(assembled(kernels[name]).function.body))
        floats = (ours["fma"], ours["add"] + ours["sub"])
        assert floats == (machine["FFMA"], machine["FADD"]), random_kernel(int(name[1:]), name)
