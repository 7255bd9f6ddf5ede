"""Random kernels with mbarriers and bulk copies: a producer fills stages, consumers read and release them, and one
step is wrong now and then.
"""

from tests.ptx.executor.pipeline_plans import Plan

HEAD = """.version 8.6
.target sm_90a
.address_size 64
{sign}.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 given, .param .align 64 .b8 out_map[128],
  .param .u64 out)
{{
  .reg .pred %p<10>; .reg .b32 %r<80>; .reg .b64 %rd<24>; .reg .b32 %a<4>; .reg .f32 %f<4>;
  .shared .align 1024 .b8 stage[{stages}];
  .shared .align 1024 .b8 buffer[{buffers}];
  .shared .align 16 .b8 scratch[{scratch}];
  .shared .align 8 .b64 full[4];
  .shared .align 8 .b64 empty[4];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 31; sub.u32 %r4, %r0, {first};
  mov.u32 %r5, stage; mov.u32 %r6, full; mov.u32 %r7, empty; mov.u32 %r8, buffer; mov.u32 %r9, scratch;
  mov.b64 %rd0, map; cvta.param.u64 %rd0, %rd0; mov.b64 %rd2, out_map; cvta.param.u64 %rd2, %rd2;
  ld.param.u64 %rd1, [given]; ld.param.u64 %rd3, [out];
  setp.eq.u32 %p3, %r3, 0; setp.eq.u32 %p4, %r4, 0; setp.eq.u32 %p1, %r2, {producer}; and.pred %p0, %p1, %p3;
  shl.b32 %r13, %r4, 2; add.u32 %r14, %r8, %r13; add.u32 %r15, %r9, %r13;
"""
# named barriers: full ones from 1 on, empty ones from 5 on, and one of all consumers
FULL, EMPTY, CONSUMERS = 1, 5, 9


class Kernel(Plan):
    """`text` is a kernel for `grid` blocks of `threads`, `fault` the step that is wrong in it, or an empty word."""

    def __init__(self, seed):
        super().__init__(seed)
        self._lines, self._labels = [], 0
        self._begin()
        if self.producer == "among":
            self._tiles(self._shared_round)
        else:
            self._apart()
        self._end()
        self.text = "\n".join([*self._lines, "  ret;\n}\n"])

    def _line(self, *texts):
        self._lines.extend(f"  {text}" for text in texts)

    def _label(self, name):
        self._labels += 1
        return f"{name}{self._labels}"

    # The step that is wrong

    def _is_worst(self, number):
        """%p6: whether this round, of a number or of the register of it, is the one in which a step is wrong."""
        self._line(f"setp.eq.u32 %p6, {number}, {self.worst};")

    def _unless(self, fault, write, number):
        """A step that is left out where it is the fault."""
        if self.fault != fault:
            write()
        elif not self.everywhere:
            label = self._label("LEFT")
            self._is_worst(number)
            self._line(f"@%p6 bra {label};")
            write()
            self._lines.append(f"{label}:")

    def _only(self, fault, write, number):
        """A step that is too much, where it is the fault."""
        if self.fault == fault:
            label = self._label("RIGHT")
            if not self.everywhere:
                self._is_worst(number)
                self._line(f"@!%p6 bra {label};")
            write()
            self._lines.append(f"{label}:")

    def _value(self, fault, right, wrong, number):
        """An operand that is another where it is the fault."""
        if self.fault != fault:
            return right
        self._is_worst(number)
        if self.everywhere:
            self._line(f"setp.ne.u32 %p6, {number}, 999;")
        self._line(f"selp.b32 %r60, {wrong}, {right}, %p6;")
        return "%r60"

    # Begin and end

    def _begin(self):
        sizes = {"stages": self.stages * self.pitch(), "buffers": self.buffers * 512, "scratch": 4 * self.consumers}
        first, producer = (32, 0) if self.producer == "first" else (0, self.warps)
        if self.producer == "among":
            producer = 0
        self._lines.append(HEAD.format(sign=self.sign, first=first, producer=producer, **sizes).rstrip("\n"))
        if self.elects:
            self._line("elect.sync %r61|%p7, -1;", "and.pred %p0, %p1, %p7;")
        if self.multiplies:
            self._descriptors()
        self._init()
        self._line("mov.u32 %r10, 1;")

    def pitch(self):
        """Bytes from one stage to the next."""
        return max(1024, self.nbytes)

    def _descriptors(self):
        """Of tiles in rows of 32 bytes or without a swizzle: A of 2,048 bytes, behind it B of 256."""
        self._line("shr.u32 %r62, %r5, 4; cvt.u64.u32 %rd10, %r62;")
        for register, lead, at in (("%rd11", 1024, 0), ("%rd12", 128, 2048)):
            fields = 3 << 62 | (256 >> 4) << 32 if self.swizzle == "32B" else (128 >> 4) << 32 | (lead >> 4) << 16
            self._line(f"mov.b64 {register}, {hex(fields)}; or.b64 {register}, {register}, %rd10;")
            self._line(f"add.u64 {register}, {register}, {at >> 4};")

    def _init(self):
        counts = {"warps": self.warps, "threads": self.consumers, "group": 1}
        empty = counts[self.released_by] + (self.fault == "empty count") * (1 if self.stages % 2 else -1)
        full = 32 if self.kind == "stores" and self.stored_by == "lanes" else 1
        self._line("@!%p0 bra READY;")
        for stage in range(self.stages):
            if self.full == "mbarrier":
                self._line(f"mbarrier.init.shared::cta.b64 [%r6+{8 * stage}], {full};")
            if self.empty == "mbarrier":
                self._line(f"mbarrier.init.shared::cta.b64 [%r7+{8 * stage}], {max(1, empty)};")
        if self.init_fence:
            self._line(self.init_fence)
        self._lines.append("READY:")
        if self.fault != "no init barrier":
            self._line("bar.sync 0;")

    def _end(self):
        self._lines.append("END:")
        if self.invalidates:
            self._line("bar.warp.sync -1;", "bar.sync 0;", "@!%p0 bra INVALID;")
            for stage in range(self.stages):
                if self.full == "mbarrier":
                    self._line(f"mbarrier.inval.shared::cta.b64 [%r6+{8 * stage}];")
                if self.empty == "mbarrier":
                    self._line(f"mbarrier.inval.shared::cta.b64 [%r7+{8 * stage}];")
            self._lines.append("INVALID:")

    # Rounds

    def _repeated(self, register, count, write):
        """`write` once for each number below `count`, in a loop or one behind the other."""
        if not self.loops:
            for number in range(count):
                self._line(f"mov.u32 {register}, {number};")
                write(number)
            return
        label = self._label("AGAIN")
        self._line(f"mov.u32 {register}, 0;")
        self._lines.append(f"{label}:")
        write(None)
        self._line(
            f"add.u32 {register}, {register}, 1;", f"setp.lt.u32 %p9, {register}, {count};", f"@%p9 bra {label};"
        )

    def _tiles(self, round_of):
        """All tiles of a block: %r11 is the tile, %r12 the round of it, %r16 the round of all."""

        def tile(_):
            if self.multiplies:
                self._line("mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;")
            self._repeated("%r12", self.rounds, one_round)
            if self.multiplies:
                self._line("wgmma.wait_group.sync.aligned 0;")
                if self.late:
                    self._release("%r16")
                for number in range(4):
                    self._line(f"mov.b32 %r63, %f{number}; mad.lo.u32 %r10, %r10, 31, %r63;")
            self._put()

        def one_round(_):
            self._line(f"mad.lo.u32 %r16, %r11, {self.rounds}, %r12;")
            round_of("%r16")

        if self.producer == "among":
            for number in range(min(self.ahead(), self.total)):
                self._line(f"mov.u32 %r31, {number};")
                self._issued()
        self._repeated("%r11", self.tiles, tile)
        if self.output != "threads" and self.last_wait:
            self._line(f"@%p4 cp.async.bulk.{self.last_wait};")

    def _shared_round(self, number):
        """A round in which warp 0 fills a stage for a later one."""
        label = self._label("ENOUGH")
        if self.empty == "block":
            self._unless("empty wait", lambda: self._line("bar.sync 0;"), number)
        self._line(f"add.u32 %r31, {number}, {self.ahead()};", f"setp.ge.u32 %p5, %r31, {self.total};")
        self._line(f"@%p5 bra {label};")
        self._issued()
        self._lines.append(f"{label}:")
        self._consume(number)

    def _issued(self):
        """The producer's part of a round, by warp 0 or its lane."""
        label = self._label("ISSUED")
        self._line(f"@!{'%p0' if self.issued_by == 'lane' else '%p1'} bra {label};")
        self._issue("%r31")
        self._lines.append(f"{label}:")
        if self.meets:
            self._line("bar.warp.sync -1;")

    def _apart(self):
        """A warp that produces, and the others."""
        self._line("@!%p1 bra CONSUME;")
        if self.issued_by == "lane":
            self._line("@!%p0 bra END;")
        self._repeated("%r31", self.total, lambda _: self._issue("%r31"))
        self._line("bra END;")
        self._lines.append("CONSUME:")
        self._tiles(self._consume)

    # The producer

    def _issue(self, number):
        """One stage is filled, as soon as it is free."""
        self._slot(number, 20)
        self._line(f"div.u32 %r26, {number}, {self.rounds}; rem.u32 %r27, {number}, {self.rounds};")
        self._line(f"mad.lo.u32 %r26, %r26, {self.grid}, %r1; mad.lo.u32 %r26, %r26, {self.rounds}, %r27;")
        if self.empty != "block":
            self._unless("empty wait", lambda: self._wait_until_empty(number), number)
        if self.kind == "stores":
            self._store(number)
            return
        guard = "@%p0 " if self.issued_by == "warp" else ""
        self._expect(number, guard)
        self._copies("%r25", guard)
        self._only("two copies", lambda: self._copies("%r25", guard), number)

    def _slot(self, number, first):
        """Registers from `first` on: slot, times it was used, 8 x slot, its full and empty barriers, its bytes."""
        slot, turn, at, full, empty, data = (f"%r{first + index}" for index in range(6))
        self._line(f"rem.u32 {slot}, {number}, {self.stages}; div.u32 {turn}, {number}, {self.stages};")
        self._line(f"shl.b32 {at}, {slot}, 3; add.u32 {full}, %r6, {at}; add.u32 {empty}, %r7, {at};")
        self._line(f"mad.lo.u32 {data}, {slot}, {self.pitch()}, %r5;")

    def _wait_until_empty(self, number):
        label = self._label("FREE")
        if self.empty == "named" or self.skips_first:
            self._line(f"setp.lt.u32 %p5, {number}, {self.stages};", f"@%p5 bra {label};")
        if self.empty == "named":
            self._line(f"add.u32 %r28, %r20, {EMPTY};", f"bar.sync %r28, {self.threads};")
        else:
            self._line("and.b32 %r28, %r21, 1; xor.b32 %r28, %r28, 1; xor.b32 %r29, %r28, 1;")
            parity = self._value("producer parity", "%r28", "%r29", number)
            lone = self.issued_by == "lane" and self.wait == "one lane"
            self._wait("%r24", parity, "all" if lone else self.wait)
        self._lines.append(f"{label}:")

    def _expect(self, number, guard):
        twice = self.fault == "two copies"
        self._line(f"mov.u32 %r32, {self.nbytes}; mov.u32 %r33, {self.nbytes + 16 * (1 if self.stages % 2 else -1)};")
        if twice:
            self._line(f"mov.u32 %r33, {2 * self.nbytes};")
        nbytes = self._value("two copies" if twice else "bytes", "%r32", "%r33", number)
        if self.expects_apart:
            self._line(f"{guard}mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r23], {nbytes};")
            self._line(f"{guard}mbarrier.arrive.shared::cta.b64 _, [%r23];")
        else:
            self._line(f"{guard}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r23], {nbytes};")

    def _copies(self, data, guard):
        for part in range(self.parts):
            at = f"[{data}+{part * self.part}]"
            if self.kind == "bulk":
                self._line(f"mul.lo.u32 %r34, %r26, {self.nbytes}; add.u32 %r34, %r34, {part * self.part};")
                self._line("cvt.u64.u32 %rd4, %r34; add.u64 %rd4, %rd4, %rd1;")
                opcode = f"cp.async.bulk.{self.space}.global.mbarrier::complete_tx::bytes"
                self._line(f"{guard}{opcode} {at}, [%rd4], {self.part}, [%r23];")
            else:
                self._tensor_copy(part, at, guard)

    def _tensor_copy(self, part, at, guard):
        """Boxes follow each other in the dimension that is not the innermost one."""
        axis = min(self.rank - 1, 1)
        step = self.box()[axis]
        self._line(f"mad.lo.u32 %r35, %r26, {self.parts}, {part}; mul.lo.u32 %r35, %r35, {step};")
        if self.rank > 1:
            self._line(f"add.s32 %r35, %r35, {self.lead};")
        coordinates = {1: "%r35", 2: "0, %r35", 3: f"0, %r35, {self.lead}"}[self.rank]
        opcode = f"cp.async.bulk.tensor.{self.rank}d.{self.space}.global.tile.mbarrier::complete_tx::bytes"
        self._line(f"{guard}{opcode} {at}, [%rd0, {{{coordinates}}}], [%r23];")

    def _store(self, number):
        """A stage that the warp itself writes, from ordinary loads."""
        self._line(f"mul.lo.u32 %r34, %r26, {self.nbytes}; shl.b32 %r35, %r3, 4; add.u32 %r34, %r34, %r35;")
        self._line("cvt.u64.u32 %rd4, %r34; add.u64 %rd4, %rd4, %rd1; add.u32 %r36, %r25, %r35;")
        for at in range(0, self.nbytes, 512):
            self._line(f"ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%rd4+{at}];")
            self._line(f"st.shared.v4.u32 [%r36+{at}], {{%a0, %a1, %a2, %a3}};")
        if self.multiplies:
            self._unless("data fence", lambda: self._line("fence.proxy.async;"), number)
        if self.full == "named":
            self._line(f"add.u32 %r28, %r20, {FULL};", f"bar.arrive %r28, {self.threads};")
        elif self.stored_by == "lanes":
            self._line("mbarrier.arrive.shared::cta.b64 _, [%r23];")
        else:
            self._line("bar.warp.sync -1;", "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r23];")

    # Consumers

    def _consume(self, number):
        self._slot(number, 40)
        self._unless("full wait", lambda: self._wait_until_full(number), number)
        self._only("early release", lambda: self._release(number), number)
        self._only("stage store", lambda: self._spoil(""), number)
        if self.multiplies:
            self._multiply()
        else:
            self._read()
        if self.meets:
            self._meet()
        self._only("fenced stage store", lambda: self._spoil("fence.proxy.async;"), number)
        if self.exchanges:
            self._exchange(number)
        if self.late:
            self._release_late()
        elif self.fault == "early release":
            self._unless("early release", lambda: self._release(number), number)
        else:
            self._unless("release", lambda: self._release(number), number)

    def _wait_until_full(self, number):
        label = self._label("FULL")
        if self.fault == "one warp's full wait":
            warp = self.odd_warp + (self.producer == "first")
            self._is_worst(number)
            self._line(f"setp.eq.u32 %p7, %r2, {warp};", "and.pred %p6, %p6, %p7;", f"@%p6 bra {label};")
        if self.full == "named":
            self._line(f"add.u32 %r48, %r40, {FULL};", f"bar.sync %r48, {self.threads};")
        else:
            self._line("and.b32 %r48, %r41, 1; xor.b32 %r49, %r48, 1;")
            self._wait("%r43", self._value("parity", "%r48", "%r49", number), self.wait)
        self._lines.append(f"{label}:")

    def _read(self):
        """Words of the stage, into %r10: the order of rounds is seen."""
        words = self.nbytes // 4
        for count in range(self.read_count):
            shift = {"own": 0, "neighbour": 1 + count, "same": 0, "rows": 37}[self.reads]
            thread = "%r3" if self.reads == "same" else "%r4"
            self._line(f"add.u32 %r50, {thread}, {shift + count * self.consumers}; and.b32 %r50, %r50, {words - 1};")
            if self.reads == "rows":
                self._line(f"and.b32 %r50, %r50, {words - 4}; shl.b32 %r50, %r50, 2; add.u32 %r50, %r50, %r45;")
                self._line("ld.shared.v4.u32 {%a0, %a1, %a2, %a3}, [%r50];")
                self._line("xor.b32 %a0, %a0, %a1; add.u32 %a2, %a2, %a3; mad.lo.u32 %r51, %a0, 3, %a2;")
            else:
                self._line("shl.b32 %r50, %r50, 2; add.u32 %r50, %r50, %r45;", "ld.shared.u32 %r51, [%r50];")
            self._line("mad.lo.u32 %r10, %r10, 31, %r51;")

    def _multiply(self):
        """A product of what the stage holds, in %f0 to %f3."""
        self._line("sub.u32 %r50, %r45, %r5; shr.u32 %r50, %r50, 4; cvt.u64.u32 %rd13, %r50;")
        self._line("add.u64 %rd14, %rd11, %rd13; add.u64 %rd15, %rd12, %rd13;", "wgmma.fence.sync.aligned;")
        operation = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        self._line(
            f"{operation} {{%f0, %f1, %f2, %f3}}, %rd14, %rd15, 1, 1, 1, 0, 0;", "wgmma.commit_group.sync.aligned;"
        )
        self._line(f"wgmma.wait_group.sync.aligned {int(self.late)};")

    def _spoil(self, fence):
        """A consumer writes the word of the stage that it reads itself."""
        self._line(f"and.b32 %r50, %r4, {self.nbytes // 4 - 1}; shl.b32 %r50, %r50, 2; add.u32 %r50, %r50, %r45;")
        self._line("@%p4 st.shared.u32 [%r50], %r10;")
        if fence:
            self._line(fence)

    def _meet(self):
        """All consumers meet."""
        if self.consumers == self.threads:
            self._line("bar.sync 0;")
        else:
            self._line(f"bar.sync {CONSUMERS}, {self.consumers};")

    def _exchange(self, number):
        """Each consumer takes in what the next one has found so far."""
        self._line("st.shared.u32 [%r15], %r10;")
        self._unless("exchange barrier", self._meet, number)
        self._line(f"add.u32 %r52, %r4, 1; rem.u32 %r52, %r52, {self.consumers}; shl.b32 %r52, %r52, 2;")
        self._line("add.u32 %r52, %r52, %r9;", "ld.shared.u32 %r53, [%r52];", "xor.b32 %r10, %r10, %r53;")
        self._meet()

    def _release_late(self):
        """The stage of the round before, whose product is complete."""
        label = self._label("LATER")
        self._line("setp.eq.u32 %p5, %r12, 0;", f"@%p5 bra {label};", "sub.u32 %r54, %r16, 1;")
        self._unless("release", lambda: self._release("%r54"), "%r54")
        self._lines.append(f"{label}:")

    def _release(self, number):
        if self.empty == "block":
            return
        self._slot(number, 70)
        if self.empty == "named":
            label = self._label("LAST")
            self._line(f"add.u32 %r76, {number}, {self.stages}; setp.ge.u32 %p5, %r76, {self.total};")
            self._line(f"@%p5 bra {label};", f"add.u32 %r76, %r70, {EMPTY};", f"bar.arrive %r76, {self.threads};")
            self._lines.append(f"{label}:")
            return
        guard = {"warps": "@%p3 ", "threads": "", "group": "@%p4 "}[self.released_by]
        if self.released_by == "warps":
            self._unless("meeting", lambda: self._line("bar.warp.sync -1;"), number)
        if self.released_by == "group":
            self._unless("group meeting", self._meet, number)
        count = self._value("arrives twice", 1, 2, number)
        tail = "" if count == 1 else f", {count}"
        self._line(f"{guard}mbarrier.arrive.shared::cta.b64 _, [%r74]{tail};")

    # Output

    def _put(self):
        """What the consumers found in a tile, into memory."""
        self._line(f"mad.lo.u32 %r55, %r11, {self.grid}, %r1;")
        if self.output == "threads":
            self._line(f"mad.lo.u32 %r56, %r55, {self.consumers}, %r4; mul.wide.u32 %rd5, %r56, 4;")
            self._line("add.u64 %rd5, %rd5, %rd3;", "st.global.u32 [%rd5], %r10;")
            return
        self._line(f"rem.u32 %r57, %r11, {self.buffers}; shl.b32 %r57, %r57, 9;")
        if not self.waits_at_once:
            self._wait_for_group()
        self._meet()
        self._line("add.u32 %r58, %r14, %r57;", "st.shared.u32 [%r58], %r10;")
        self._show()
        if self.fault != "output barrier":
            self._meet()
        self._line("add.u32 %r58, %r8, %r57;")
        self._store_out()
        self._line("@%p4 cp.async.bulk.commit_group;")
        if self.waits_at_once:
            self._wait_for_group()

    def _show(self):
        """The proxy fence before memory is stored by a bulk copy."""
        if self.fault == "one warp's proxy fence":
            self._line(f"setp.ne.u32 %p5, %r2, {self.odd_warp + (self.producer == 'first')};")
            self._line("@%p5 fence.proxy.async.shared::cta;")
        elif self.fault != "proxy fence":
            self._line("fence.proxy.async.shared::cta;")

    def _wait_for_group(self):
        if self.fault != "group wait":
            self._line(f"@%p4 cp.async.bulk.wait_group.read {self.buffers - 1};")

    def _store_out(self):
        if self.output == "tensor":
            self._line(f"mul.lo.u32 %r59, %r55, {self.warps};")
            opcode = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
            self._line(f"@%p4 {opcode} [%rd2, {{0, %r59}}], [%r58];")
        else:
            self._line(f"mul.wide.u32 %rd6, %r55, {4 * self.consumers}; add.u64 %rd6, %rd6, %rd3;")
            opcode = "cp.async.bulk.global.shared::cta.bulk_group"
            self._line(f"@%p4 {opcode} [%rd6], [%r58], {4 * self.consumers};")

    # Waits

    def _wait(self, address, parity, form):
        """Until the phase of this parity is complete."""
        done, again = self._label("MET"), self._label("TRY")
        opcode = "mbarrier.try_wait.parity.shared::cta.b64"
        more = ""
        if form == "test":
            opcode = "mbarrier.test_wait.parity.shared::cta.b64"
        if form == "acquire":
            opcode = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"
        if form == "hint":
            more = ", 1000"
        if form == "one lane":
            self._line(f"@!%p3 bra {done};")
        if form == "peek":
            self._line(f"mbarrier.test_wait.parity.shared::cta.b64 %p2, [{address}], {parity};", f"@%p2 bra {done};")
        self._lines.append(f"{again}:")
        self._line(f"{opcode} %p2, [{address}], {parity}{more};")
        self._line(*((f"@%p2 bra {done};", f"bra {again};") if form == "goes" else (f"@!%p2 bra {again};",)))
        self._lines.append(f"{done}:")
        if form == "one lane":
            self._line("bar.warp.sync -1;")
