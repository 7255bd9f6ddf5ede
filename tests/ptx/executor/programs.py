"""Random kernels of what the executor runs: some are right, in some a barrier is missing or an address is wrong."""

import random

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 out)
{{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<16>; .reg .f64 %d<4>;
  .shared .align 16 .b8 buffer[{shared}];
  ld.param.u64 %rd0, [given]; ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r3, %r1, %r2, %r0;
  mov.u32 %r4, buffer;
  mul.wide.u32 %rd2, %r3, 16; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
  ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd3];
  mov.b32 %f0, %r10; mov.b32 %f1, %r11; cvt.u64.u32 %rd10, %r12; cvt.u64.u32 %rd11, %r13;
  cvt.u16.u32 %h0, %r12; cvt.u16.u32 %h1, %r13; mov.u32 %r14, 1;
  mov.u32 %r15, 2; mov.f32 %f2, 0f3F800000; mov.f32 %f3, 0f40490FDB;
  cvt.f64.f32 %d0, %f2; cvt.f64.f32 %d1, %f3; setp.lt.u32 %p0, %r10, %r11; setp.eq.u32 %p1, %r12, %r13;
  shl.b32 %r40, %r0, 4; add.u32 %r41, %r4, %r40; st.shared.v4.u32 [%r41], {{%r10, %r11, %r12, %r13}};
  bar.sync 0;
"""
TAIL = """  st.global.v4.u32 [%rd4], {%r10, %r11, %r12, %r13};
  ret;
}
"""
THREADS = 96
INTEGERS = (
    "add.u32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mul.lo.u32 {d}, {a}, {b};", "mul.hi.s32 {d}, {a}, {b};",
    "mad.lo.s32 {d}, {a}, {b}, {c};", "and.b32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};", "or.b32 {d}, {a}, {b};",
    "not.b32 {d}, {a};", "shl.b32 {d}, {a}, {b};", "shr.u32 {d}, {a}, {b};", "shr.s32 {d}, {a}, {k};",
    "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};", "abs.s32 {d}, {a};", "neg.s32 {d}, {a};", "popc.b32 {d}, {a};",
    "clz.b32 {d}, {a};", "brev.b32 {d}, {a};", "bfe.u32 {d}, {a}, 3, 11;", "bfi.b32 {d}, {a}, {b}, 5, 9;",
    "prmt.b32 {d}, {a}, {b}, 0x5410;", "lop3.b32 {d}, {a}, {b}, {c}, 0x{lut:x};", "shf.l.wrap.b32 {d}, {a}, {b}, {k};",
    "selp.b32 {d}, {a}, {b}, {p};", "dp4a.u32.u32 {d}, {a}, {b}, {c};", "mul24.lo.u32 {d}, {a}, {b};",
    "sad.u32 {d}, {a}, {b}, {c};", "or.b32 %r50, {b}, 1; div.u32 {d}, {a}, %r50;",
    "or.b32 %r50, {b}, 1; rem.s32 {d}, {a}, %r50;",
)  # fmt: skip
OTHERS = (
    "setp.lt.s32 {p}, {a}, {b};", "setp.ge.u32 {p}, {a}, {b};", "setp.ne.b32 {p}, {a}, {k};", "and.pred {p}, {p}, {q};",
    "not.pred {p}, {q};", "mul.wide.u32 {e}, {a}, {b};", "add.u64 {e}, {e}, {x};", "shr.u64 {e}, {x}, {k};",
    "cvt.u32.u64 {d}, {x};", "cvt.s64.s32 {e}, {a};", "mov.b64 {{%r50, %r51}}, {x}; xor.b32 {d}, %r50, %r51;",
    "mov.b64 {e}, {{{a}, {b}}};", "cvt.u16.u32 {h}, {a};", "add.u16 {h}, {h}, {g};", "cvt.u32.u16 {d}, {h};",
    "mov.b32 {d}, {{{h}, {g}}};", "cvt.rn.f32.s32 {f}, {a};", "add.f32 {f}, {u}, {v};",
    "fma.rn.f32 {f}, {u}, {v}, {f};",
    "mul.ftz.f32 {f}, {u}, {v};", "max.f32 {f}, {u}, {v};", "min.NaN.f32 {f}, {u}, {v};", "abs.f32 {f}, {u};",
    "ex2.approx.ftz.f32 {f}, {u};", "rcp.approx.f32 {f}, {u};", "div.full.f32 {f}, {u}, {v};", "sqrt.rn.f32 {f}, {u};",
    "setp.gt.f32 {p}, {u}, {v};", "selp.f32 {f}, {u}, {v}, {p};", "mov.b32 {d}, {f};", "cvt.rzi.s32.f32 {d}, {u};",
    "cvt.rn.bf16x2.f32 {d}, {u}, {v};", "cvt.rn.f16x2.f32 {d}, {u}, {v};", "add.f16x2 {d}, {a}, {b};",
    "fma.rn.f16x2 {d}, {a}, {b}, {c};", "cvt.f64.f32 {w}, {u};", "add.f64 {w}, {w}, {w};", "cvt.rn.f32.f64 {f}, {w};",
)  # fmt: skip
# how a thread's number becomes another's, whose element it accesses
SHUFFLED = ("{t}", "{t}", "xor {k}", "rotate {k}", "halve", "one")


class Kernel:
    """Draws the text of one kernel."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.careful = self.random.random() < 0.6
        self._labels = 0
        self.text = HEAD.format(shared=16 * THREADS) + self._lines(self.random.randint(4, 14), 0) + TAIL

    def _names(self):
        some = self.random
        return {
            **{one: f"%r{some.randint(10, 15)}" for one in "abcd"},
            **{one: f"%p{some.randint(0, 1)}" for one in "pq"},
            **{one: f"%f{some.randint(0, 3)}" for one in "fuv"},
            **{one: f"%rd{some.randint(10, 11)}" for one in "ex"},
            **{one: f"%h{some.randint(0, 1)}" for one in "hg"},
            "w": f"%d{some.randint(0, 1)}",
            "k": some.randint(0, 31),
            "lut": some.randint(1, 254),
        }

    def _lines(self, count, depth):
        kinds = (
            "integers",
            "integers",
            "others",
            "shared",
            "shared",
            "global_",
            "exchange",
            "atomic",
            "copy",
            "branch",
            "loop",
        )
        return "".join(getattr(self, f"_{self.random.choice(kinds)}")(depth) for _ in range(count))

    def _integers(self, depth):
        return "".join(f"  {self.random.choice(INTEGERS).format(**self._names())}\n" for _ in range(4))

    def _others(self, depth):
        return "".join(f"  {self.random.choice(OTHERS).format(**self._names())}\n" for _ in range(4))

    def _other(self):
        """%r42: the number of a thread of the block."""
        some, how = self.random, self.random.choice(SHUFFLED)
        return {
            "{t}": "  mov.u32 %r42, %r0;\n",
            "xor {k}": f"  xor.b32 %r42, %r0, {some.choice((1, 2, 5, 16, 31))};\n",
            "rotate {k}": f"  add.u32 %r42, %r0, {some.randint(1, THREADS - 1)}; rem.u32 %r42, %r42, {THREADS};\n",
            "halve": "  shr.u32 %r42, %r0, 1;\n",
            "one": f"  mov.u32 %r42, {some.randint(0, THREADS - 1)};\n",
        }[how]

    def _barrier(self, depth):
        if depth:
            return ""
        return self.random.choice(("  bar.sync 0;\n",) * (9 if self.careful else 2) + ("", "  bar.warp.sync -1;\n"))

    def _shared(self, depth):
        some, names = self.random, self._names()
        form = some.choice(
            (
                "ld.shared.u32 {d}, [%r43+{o4}];",
                "ld.shared.v2.u32 {{{d}, %r51}}, [%r43+{o8}];",
                "ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r43];",
                "ld.shared.u8 {d}, [%r43+{o1}];",
                "ld.shared.u16 {h}, [%r43+{o2}];",
                "st.shared.u32 [%r43+{o4}], {a};",
                "st.shared.v2.u32 [%r43+{o8}], {{{a}, {b}}};",
                "st.shared.v4.u32 [%r43], {{%r10, %r11, %r12, %r13}};",
                "st.shared.u16 [%r43+{o2}], {h};",
                "st.shared.u8 [%r43+{o1}], {a};",
            )
        )
        offsets = {f"o{step}": some.randrange(0, 16, step) for step in (1, 2, 4, 8)}
        own = self._other() if not form.startswith("st") or some.random() < 0.3 else "  mov.u32 %r42, %r0;\n"
        guard = some.choice(("", "", "@%p0 "))
        line = f"  {guard}{form.format(**names, **offsets)}\n"
        where = "  shl.b32 %r42, %r42, 4; add.u32 %r43, %r4, %r42;\n"
        return self._barrier(depth) + own + where + line + self._barrier(depth)

    def _global_(self, depth):
        some, names = self.random, self._names()
        form = some.choice(
            (
                "ld.global.u32 {d}, [%rd3+4];",
                "st.global.u32 [%rd4+8], {a};",
                "ld.global.u32 {d}, [%rd4];",
                "st.global.u16 [%rd4+2], {h};",
            )
        )
        wrong = not self.careful and some.random() < 0.1
        line = f"  {some.choice(('', '@%p1 '))}{form.format(**names)}\n"
        return line.replace("[%rd4", "[%rd5").join(("  add.u64 %rd5, %rd4, 4096;\n", "")) if wrong else line

    def _exchange(self, depth):
        if depth:
            return ""
        names = self._names()
        return "  {}\n".format(
            self.random.choice(
                (
                    "shfl.sync.bfly.b32 {d}, {a}, {k}, 31, -1;",
                    "shfl.sync.idx.b32 {d}|{p}, {a}, {b}, 31, -1;",
                    "shfl.sync.up.b32 {d}, {a}, 3, 0, -1;",
                    "vote.sync.ballot.b32 {d}, {p}, -1;",
                    "vote.sync.any.pred {p}, {q}, -1;",
                    "redux.sync.add.u32 {d}, {a}, -1;",
                )
            ).format(**names)
        )

    def _atomic(self, depth):
        names = self._names()
        form = self.random.choice(
            (
                "atom.global.add.u32 {d}, [%rd1+{o}], {a};",
                "red.global.max.u32 [%rd1+{o}], {a};",
                "atom.shared.xor.b32 {d}, [%r41+4], {a};",
                "atom.global.cas.b32 {d}, [%rd4+12], {a}, {b};",
            )
        )
        return f"  {form.format(**names, o=4 * self.random.randint(0, 3))}\n"

    def _copy(self, depth):
        if depth:
            return ""
        some = self.random
        text = f"  cp.async.ca.shared.global [%r41], [%rd3], {some.choice((4, 8, 16))};\n  cp.async.commit_group;\n"
        text += self._integers(depth)
        if self.careful or some.random() < 0.7:
            text += f"  cp.async.wait_group {0 if self.careful else some.randint(0, 1)};\n"
        return self._barrier(depth) + text + self._barrier(depth)

    def _branch(self, depth):
        if depth > 1:
            return ""
        self._labels += 1
        label, other = f"ELSE{self._labels}", f"MET{self._labels}"
        one, two = (self._lines(self.random.randint(1, 3), depth + 1) for _ in range(2))
        return f"  @%p{self.random.randint(0, 1)} bra {label};\n{one}  bra {other};\n{label}:\n{two}{other}:\n"

    def _loop(self, depth):
        if depth > 1:
            return ""
        self._labels += 1
        counter, label = f"%r{20 + self._labels}", f"AGAIN{self._labels}"
        rounds = self.random.choice(("3", "%r44"))
        body = self._lines(self.random.randint(1, 3), depth + 1)
        return (
            f"  and.b32 %r44, %r0, 3; mov.u32 {counter}, 0;\n{label}:\n{body}  add.u32 {counter}, {counter}, 1;\n"
            f"  and.b32 %r44, %r0, 3;\n  setp.lt.u32 %p2, {counter}, {rounds};\n  @%p2 bra {label};\n"
        )
