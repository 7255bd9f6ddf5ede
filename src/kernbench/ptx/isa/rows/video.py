"""Video instructions: on bytes and halves of registers, one at a time or packed."""

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group

group = Group("Video instructions", "int", LANE_WISE)
row = group.row

_TYPES = "dtype:u32|s32 atype:u32|s32 btype:u32|s32"
_COMPARED = "atype:u32|s32 btype:u32|s32 cmp:eq|ne|lt|le|gt|ge"
_SECOND = "second:add|min|max"


def _scalar(opcodes: str, modifiers: str, result: str, b: str) -> None:
    """Three forms: the value alone, with a second operation, or merged into a part of c."""
    sources = f"a^:atype, b^:{b}"
    row(opcodes, modifiers, f"=d:{result}, {sources}", "video", since="2.0", sm=20)
    row(opcodes, f"{modifiers} {_SECOND}", f"=d:{result}, {sources}, c:{result}", "video", since="2.0", sm=20)
    row(opcodes, modifiers, f"=d^:{result}, {sources}, c:{result}", "video", since="2.0", sm=20)


_scalar("vadd vsub vabsdiff vmin vmax", f"{_TYPES} sat?", "dtype", "btype")
_scalar("vshl vshr", "dtype:u32|s32 atype:u32|s32 btype:u32 sat? mode:clamp|wrap", "dtype", "btype")
_scalar("vset", _COMPARED, "u32", "btype")
row("vmad", f"{_TYPES} po? sat? scale?:shr7|shr15", "=d:dtype, a^:atype, b^:btype, c:dtype", since="2.0", sm=20)
for lanes in (2, 4):
    packed = " ".join(f"{name}{lanes}" for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"))
    operands = "=d^:dtype, a!^:atype, b!^:btype, c!:dtype"
    row(packed, f"{_TYPES} sat?", operands, "video.packed", since="3.0", sm=30)
    row(packed, f"{_TYPES} second:add", operands, "video.packed", since="3.0", sm=30)
    operands = "=d^:u32, a!^:atype, b!^:btype, c!:u32"
    row(f"vset{lanes}", f"{_COMPARED} second?:add", operands, "video.packed", since="3.0", sm=30)
