from kernbench import ptx
from kernbench.ptx.emulator.program.layout import reachable

TABLES = """
.version 8.0
.target sm_90
.address_size 64
.func first { ret; }
.func second { ret; }
.func third { ret; }
.func nobodys { ret; }
.global .u64 functions[2] = {first, 0};
.global .u8 bytes[2] = {0xFF(second), 0xFF00(second)};
.global .u64 tables[2] = {functions, generic(bytes)};
.visible .entry k()
{
  .reg .b64 %rd<2>;
  { mov.u64 %rd0, tables; }
  { { call third; } }
  ret;
}
"""


def test_functions_are_reached_through_blocks_tables_and_tables_of_tables():
    module = ptx.parse(TABLES)
    assert set(reachable(module.kernels["k"], module)) == {"k", "first", "second", "third"}
