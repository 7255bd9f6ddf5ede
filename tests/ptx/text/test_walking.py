"""What a body names is found in one walk, whatever blocks it has."""

from kernbench import ptx
from kernbench.ptx.text.walking import mentions

TEXT = """.version 8.0
.target sm_80
.address_size 64
.global .u64 table[2] = {one, two};
.shared .b32 outside;
.func one() { ret; }
.func two() { ret; }
.visible .entry caller(.param .u64 out)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<2>;
  .shared .b32 inside;
  mov.u64 %rd0, two;
  {
    .shared .b32 deeper;
    call one, ();
    ld.shared.b32 %r0, [outside];
    @%p call (%r1), %rd1, (%r0), proto;
  }
  ts: .branchtargets first, second;
first:
second:
  ret;
}
"""


def test_names_declarations_and_callees_of_a_body():
    kernel = ptx.parse(TEXT).kernels["caller"]
    found = mentions(kernel.function.body)
    assert found.names == ("%rd0", "two", "one", "%r0", "outside", "%r1", "%rd1", "proto")
    assert found.callees == {"one", "%rd1"}
    assert "one" not in found.taken
    assert {"two", "outside", "%r1"} <= found.taken
    assert found.targets == ("first", "second")
    assert [variable.name for variable in found.variables] == ["inside", "deeper"]


def test_a_body_is_walked_through_once():
    body = ptx.parse(TEXT).kernels["caller"].function.body
    assert mentions(body) is mentions(body)
