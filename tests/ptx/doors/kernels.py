"""Small kernels as PTX text, and arguments as bytes."""

# y[i] = x[i] + 1 for each thread, with a variable that counts launches of its first thread
ADD_ONE = """
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 launches = 7;
.visible .entry add_one(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r6, [%rd4];
    add.s32 %r7, %r6, 1;
    add.s64 %rd5, %rd2, %rd3;
    st.global.u32 [%rd5], %r7;
    setp.ne.u32 %p2, %r5, 0;
    @%p2 bra DONE;
    ld.global.u32 %r8, [launches];
    add.s32 %r8, %r8, 1;
    st.global.u32 [launches], %r8;
DONE:
    ret;
}
"""


def word(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little")
