"""The steps of a random pipeline as text: one is left out, done twice or done wrong where it is the fault."""

from tests.ptx.executor.pipeline_plans import Plan

# named barriers: full ones from 1 on, empty ones from 5 on, and one of all consumers
FULL, EMPTY, CONSUMERS = 1, 5, 9


class Steps(Plan):
    """The lines so far, and what both sides are written with."""

    def __init__(self, seed):
        super().__init__(seed)
        self._lines, self._labels = [], 0

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

    # What both sides do

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

    def _slot(self, number, first):
        """Registers from `first` on: slot, times it was used, 8 x slot, its full and empty barriers, its bytes."""
        slot, turn, at, full, empty, data = (f"%r{first + index}" for index in range(6))
        self._line(f"rem.u32 {slot}, {number}, {self.stages}; div.u32 {turn}, {number}, {self.stages};")
        self._line(f"shl.b32 {at}, {slot}, 3; add.u32 {full}, %r6, {at}; add.u32 {empty}, %r7, {at};")
        self._line(f"mad.lo.u32 {data}, {slot}, {self.pitch()}, %r5;")

    def _meet(self):
        """All consumers meet."""
        if self.meets_by == "mbarrier":
            again = self._label("MEETING")
            self._line("mbarrier.arrive.shared::cta.b64 %rd16, [%r18];")
            self._lines.append(f"{again}:")
            self._line("mbarrier.try_wait.shared::cta.b64 %p2, [%r18], %rd16;", f"@!%p2 bra {again};")
        elif self.consumers == self.threads:
            self._line("bar.sync 0;")
        else:
            self._line(f"bar.sync {CONSUMERS}, {self.consumers};")

    def _wait(self, address, parity, form):
        """Until the phase of this parity is complete."""
        done, again = self._label("MET"), self._label("TRY")
        opcode = "mbarrier.try_wait.parity.shared::cta.b64"
        more = ""
        if form == "test":
            opcode = "mbarrier.test_wait.parity.shared::cta.b64"
        if form == "acquire":
            opcode = "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"
        if self.fault == "relaxed wait":
            opcode = "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64"
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


class Producer(Steps):
    """Fills one stage after the other."""

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
        if not self.expects_late:
            self._expect(number, guard)
        self._line(f"add.u32 %r37, %r25, {self._value('misaligned copy', 0, 8, number)};")
        self._copies(number, guard)
        self._only("two copies", lambda: self._copies(number, guard), number)
        if self.expects_late:
            self._expect(number, guard)

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

    def _copies(self, number, guard):
        hint, policy = (".L2::cache_hint", ", %rd17") if self.hinted else ("", "")
        for part in range(self.parts):
            at = f"[%r37+{part * self.part}]"
            if self.kind == "bulk":
                self._line(f"mul.lo.u32 %r34, %r26, {self.nbytes}; add.u32 %r34, %r34, {part * self.part};")
                self._line(f"add.u32 %r34, %r34, {self._value('range', 0, 1 << 20, number)};")
                self._line("cvt.u64.u32 %rd4, %r34; add.u64 %rd4, %rd4, %rd1;")
                opcode = f"cp.async.bulk.{self.space}.global.mbarrier::complete_tx::bytes"
                self._line(f"{guard}{opcode}{hint} {at}, [%rd4], {self.part}, [%r23]{policy};")
            else:
                self._tensor_copy(part, at, guard, hint, policy)

    def _tensor_copy(self, part, at, guard, hint, policy):
        """Boxes follow each other in the dimension that is not the innermost one."""
        axis = min(self.rank - 1, 1)
        step = self.box()[axis]
        self._line(f"mad.lo.u32 %r35, %r26, {self.parts}, {part}; mul.lo.u32 %r35, %r35, {step};")
        if self.rank > 1:
            self._line(f"add.s32 %r35, %r35, {self.lead};")
        coordinates = {1: "%r35", 2: "0, %r35", 3: f"0, %r35, {self.lead}"}[self.rank]
        opcode = f"cp.async.bulk.tensor.{self.rank}d.{self.space}.global.tile.mbarrier::complete_tx::bytes"
        self._line(f"{guard}{opcode}{hint} {at}, [%rd0, {{{coordinates}}}], [%r23]{policy};")

    def _store(self, number):
        """A stage that the warp itself writes, from ordinary loads."""
        self._line(f"mul.lo.u32 %r34, %r26, {self.nbytes}; shl.b32 %r35, %r3, 4; add.u32 %r34, %r34, %r35;")
        self._line("cvt.u64.u32 %rd4, %r34; add.u64 %rd4, %rd4, %rd1; add.u32 %r36, %r25, %r35;")
        for at in range(0, self.nbytes, 512):
            if self.stored_by == "copies":
                self._line(f"cp.async.cg.shared.global [%r36+{at}], [%rd4+{at}], 16;")
                continue
            self._line(f"ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%rd4+{at}];")
            self._line(f"st.shared.v4.u32 [%r36+{at}], {{%a0, %a1, %a2, %a3}};")
        if self.multiplies:
            self._unless("data fence", lambda: self._line("fence.proxy.async;"), number)
        if self.full == "named":
            self._line(f"add.u32 %r28, %r20, {FULL};", f"bar.arrive %r28, {self.threads};")
        elif self.stored_by == "copies":
            self._line("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r23];")
        elif self.stored_by == "lanes":
            self._line("mbarrier.arrive.shared::cta.b64 _, [%r23];")
        else:
            self._line("bar.warp.sync -1;", "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r23];")


class Consumer(Steps):
    """Waits for a stage, reads it, and releases it."""

    def _consume(self, number):
        self._slot(number, 40)
        self._unless("full wait", lambda: self._wait_until_full(number), number)
        self._only("early release", lambda: self._release(number), number)
        self._only("stage store", lambda: self._spoil(""), number)
        self._only("over a barrier", lambda: self._line("@%p4 st.shared.u32 [%r43+4], %r10;"), number)
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
        if self.wait == "early" and self.full == "mbarrier":
            self._peek(number)

    def _peek(self, number):
        """%p8: whether the next stage is full already."""
        label = self._label("PEEKED")
        self._line(f"add.u32 %r17, {number}, 1; setp.ge.u32 %p5, %r17, {self.total};", f"@%p5 bra {label};")
        self._slot("%r17", 64)
        self._line("and.b32 %r65, %r65, 1;", "mbarrier.test_wait.parity.shared::cta.b64 %p8, [%r67], %r65;")
        self._lines.append(f"{label}:")

    def _wait_until_full(self, number):
        label = self._label("FULL")
        if self.fault == "one warp's full wait":
            warp = self.odd_warp + (self.producer == "first")
            self._is_worst(number)
            self._line(f"setp.eq.u32 %p7, %r2, {warp};", "and.pred %p6, %p6, %p7;", f"@%p6 bra {label};")
        if self.full == "named":
            self._line(f"add.u32 %r48, %r40, {FULL};", f"bar.sync %r48, {self.threads};")
        else:
            if self.wait == "early":
                self._line(f"@%p8 bra {label};")
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
        guard = {"threads": "", "group": "@%p4 "}.get(self.released_by, "@%p3 ")
        if self.released_by in ("warps", "counted"):
            self._unless("meeting", lambda: self._line("bar.warp.sync -1;"), number)
        if self.released_by == "group":
            self._unless("group meeting", self._meet, number)
        right = 32 if self.released_by == "counted" else 1
        count = self._value("arrives twice", right, right + 1, number)
        tail = "" if count == 1 else f", {count}"
        relaxed = ".relaxed.cta" if self.fault == "relaxed release" else ""
        self._line(f"{guard}mbarrier.arrive{relaxed}.shared::cta.b64 _, [%r74]{tail};")
