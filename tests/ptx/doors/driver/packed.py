"""A kernel as PTX, the same packed as compilers pack it, and fat binaries made of such parts."""

import base64
import struct

SCALE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 s, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [x];
    ld.param.f32 %f0, [s];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p, %r4, %r0;
    @%p ret;
    mul.wide.u32 %d1, %r4, 4;
    add.s64 %d2, %d0, %d1;
    ld.global.f32 %f1, [%d2];
    mul.f32 %f2, %f1, %f0;
    st.global.f32 [%d2], %f2;
    ret;
}
"""

# Zstandard at its highest level, at level 3 for the text three times over (copies across it), and an LZ4 block
ZSTD = base64.b64decode(
    "KLUv/WBLAaUIACLNKBlgeQP8P0PW9Wcxq5fRUQHM3LUT/oBF8LBKQCjzU1EWEHGnhN1KFu+UzoOg1HJ+tVxxZ9EZZFYrz3J9A8vj"
    "HbtOp5GvonNqZ55iS2LDrAtrD3VPy0FzemmUDoaiGoTBUVqy2LTizLuq2BsAAeHSvguDatn1kWje1sQz86DeOX17OF/Vu17Jvt0c"
    "OJKun/3ov2JKpxJZ37lWeGYHBlf6wuzjunk2qNFQb4KypsrOHJAqOqwD0RwT1ZQ2hZYDnAEV13lJ84gFw+C8G7S+isd+0GmbWgeR"
    "SXCDIrzwUImK0HIZUtIx3LOr//L6BvsoU3iaYJEtTQpgIWkHuVKWaW7MSkshjl/KUkz9fpYioZKpipWqAQ=="
)
ZSTD_THREE = base64.b64decode(
    "KLUv/WDhBUUJAMLOLSFAaawDGDMKaFH9l52PRKaDxqKoUQFQx9bIiveZOhkex+Rpgc1eVIKtQnwd0CkPZI5Vrbuu7b4DhVAzWT6q"
    "AmNFZjRObkSu1vpAXae+kOmoL7bQfW4aqK8jehpHQp1YIL6MVQtXvSVKOywLgcBBqjNEGYjqyzLqGZb6/0khBThnCNRnyPK1eEsg"
    "feOkiwrA0Bn0EeR0WM9Qef0iTS05J7xWdLPcdZoMg6LpT2akm5oMNdx5XkuONDEggMJzRw+TOMlHzkUwF464uQA/xwInAi34LJxs"
    "AA2bPywX1DhIgKgBEnY1PIxFGKnAnvMGhwWMuyQYZ5hMgwM3ZE1M3RqeI126uMgneZiHsSwRzxCLBrgFTBhOdMOugSlKNwYXwc+m"
    "Ge4XCYGj"
)
LZ4 = base64.b64decode(
    "9VEudmVyc2lvbiA4LjAKLnRhcmdldCBzbV84MAouYWRkcmVzc19zaXplIDY0Ci52aXNpYmxlIC5lbnRyeSBzY2FsZSgucGFyYW0g"
    "LnU2NCB4LCAucGFyYW0gLmYzMiBzLCAeAPcLMzIgbikKewogICAgLnJlZyAucHJlZCAlcDsTAJhiMzIgJXI8NT4VAIlmMzIgJWY8"
    "NBUAZWI2NCAlZBUAImxkaQAhLnUYAGIwLCBbeF1FAAUbAAJIAFwwLCBbcxsAEXV4AFMwLCBbbhsAMW1vdrQA0iVyMSwgJWN0YWlk"
    "LnhRAAYbAG8yLCAlbnQaAAFIMywgJRkAcWFkLmxvLnNnACM0LFYAcnIyLCAlcjNWAHJzZXRwLmdldQAkcCwoABIwHgByQCVwIHJl"
    "dA0Ac211bC53aWQsACNkMS0AEjQeAFFhZGQucwYBIjIsCwEyJWQxGwCRbGQuZ2xvYmFsngGUJWYxLCBbJWQy8wAUdRgAIjIsHQAj"
    "JWZ/AChzdDkAATQAUiwgJWYyVwBwcmV0Owp9Cg=="
)
_PLAIN, _LZ4, _ZSTD = 0x11, 0x2011, 0x8011


def entry(kind: int, arch: int, body: bytes, flags: int = _PLAIN, whole: int = 0) -> bytes:
    """One entry of a fat binary, padded as compilers do."""
    padded = body + bytes(-len(body) % 8)
    packed = len(body) if flags != _PLAIN else 0
    return (
        struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(padded), packed, 0, 8 << 16, arch, 0, 0, flags, 0, whole)
        + padded
    )


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def ptx_entry(text: str, arch: int) -> bytes:
    return entry(1, arch, text.encode() + b"\0")


def zstd_entry(arch: int) -> bytes:
    return entry(1, arch, ZSTD, _ZSTD, len(SCALE))


def lz4_entry(arch: int) -> bytes:
    return entry(1, arch, LZ4, _LZ4, len(SCALE))


def cubin_entry(arch: int) -> bytes:
    return entry(2, arch, b"\x7fELF" + bytes(60))
