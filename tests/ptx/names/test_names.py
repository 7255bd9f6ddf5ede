"""Names of a C++ compiler, as the source has them."""

import pytest

from kernbench.ptx.names.names import qualified_name, source_name


@pytest.mark.parametrize(
    ("mangled", "short", "long"),
    [
        ("_ZZ11bug_barrierE3bar", "bar", "bug_barrier::bar"),
        ("_ZZ6kernelPfiE4tile", "tile", "kernel::tile"),
        ("_ZZ2tkILi32EEvPKfPfiPK6__halfPdPiE4tile", "tile", "tk::tile"),
        ("_ZZN2ns4kernEPfE4tile", "tile", "ns::kern::tile"),
        ("_ZZ1kvE4tile_0", "tile", "k::tile"),
        ("_ZZ1kvE4tile__12_", "tile", "k::tile"),
        ("_ZZ1kvE6a_E3xy", "a_E3xy", "k::a_E3xy"),
        ("_ZZZ1kvENKUlvE_clEvE4tile", "tile", "_ZZZ1kvENKUlvE_clEvE4tile"),
        ("_ZN2ns5tableE", "ns::table", "ns::table"),
        ("_ZL7counter", "counter", "counter"),
        ("__cuda_local_var_12_33_non_const_tile", "tile", "tile"),
        ("global_smem", "global_smem", "global_smem"),
        ("_ZZ", "_ZZ", "_ZZ"),
        ("_ZZ3kE", "_ZZ3kE", "_ZZ3kE"),
        ("_ZZ1kE9tile", "_ZZ1kE9tile", "_ZZ1kE9tile"),
        ("", "", ""),
    ],
)
def test_names_of_the_source(mangled, short, long):
    assert (source_name(mangled), qualified_name(mangled)) == (short, long)
