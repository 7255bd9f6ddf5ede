"""What the driver says of a kernel."""

import pytest

from kernbench.ptx.doors.driver.kernels import kernel_attributes
from kernbench.ptx.text.parser import parse

PTX = """.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 x) .maxntid 128, 2, 1
{{
  ret;
}}
"""


@pytest.mark.parametrize(("target", "virtual"), [("sm_80", 80), ("sm_90a", 90), ("sm_100f", 100), ("sm_120", 120)])
def test_the_version_of_its_ptx_is_the_architecture_that_it_was_compiled_for(target, virtual):
    # as CUB reads it: 87 would be an architecture that no kernel of its has sizes for
    about = kernel_attributes(parse(PTX.format(target=target)).kernels["k"], 48, 121)
    assert (about[0], about[1], about[5], about[6]) == (256, 48, virtual, 121)
