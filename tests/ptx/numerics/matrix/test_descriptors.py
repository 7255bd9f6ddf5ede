"""What is kept of descriptors has a bound: programs compute them of addresses, and may have any number."""

import pytest

from kernbench.ptx.numerics.matrix import descriptors, instruction

MANY = 5000


@pytest.mark.parametrize(
    ("kept", "make"),
    [
        (descriptors.wgmma_descriptor, descriptors.wgmma_descriptor),
        (descriptors.tcgen05_descriptor, descriptors.tcgen05_descriptor),
        (
            instruction.instruction_descriptor,
            lambda bits: instruction.instruction_descriptor(bits, "kind::f16", "1", False),
        ),
        (
            descriptors._tile_map,
            lambda bits: descriptors.tile_map(
                descriptors.MatrixDescriptor(0, bits << 4, 0, 0, "none"), 8, 8, 16, False
            ),
        ),
    ],
    ids=["wgmma", "tcgen05", "instruction", "tiles"],
)
def test_few_of_many_are_kept(kept, make):
    first = make(0)
    for bits in range(MANY):
        make(bits)
    assert kept.cache_info().currsize <= 4096 < MANY
    # and what is made again is the same
    again = make(0)
    assert getattr(again, "last", again) == getattr(first, "last", first)
