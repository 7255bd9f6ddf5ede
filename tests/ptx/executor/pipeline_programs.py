"""Random kernels with mbarriers and bulk copies: a producer fills stages, consumers read and release them, and one
step is wrong now and then.
"""

from tests.ptx.executor.pipeline_steps import Consumer, Producer

HEAD = """.version 8.6
.target sm_90a
.address_size 64
{sign}{before}.visible .entry kernel(
  .param .align 64 .b8 map[128], .param .u64 given, .param .align 64 .b8 out_map[128], .param .u64 out)
{{
  .reg .pred %p<10>; .reg .b32 %r<80>; .reg .b64 %rd<24>; .reg .b32 %a<4>; .reg .f32 %f<4>;
{inside}  .shared .align 1024 .b8 buffer[{buffers}];
  .shared .align 16 .b8 scratch[{scratch}];
  .shared .align 8 .b64 full[4];
  .shared .align 8 .b64 empty[4];
  .shared .align 8 .b64 meeting;
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 31; sub.u32 %r4, %r0, {first};
  mov.u32 %r5, stage; mov.u32 %r6, full; mov.u32 %r7, empty; mov.u32 %r8, buffer; mov.u32 %r9, scratch;
  mov.u32 %r18, meeting; setp.ne.u32 %p8, %r0, %r0;
  mov.b64 %rd0, map; cvta.param.u64 %rd0, %rd0; mov.b64 %rd2, out_map; cvta.param.u64 %rd2, %rd2;
  ld.param.u64 %rd1, [given]; ld.param.u64 %rd3, [out];
  setp.eq.u32 %p3, %r3, 0; setp.eq.u32 %p4, %r4, 0; setp.eq.u32 %p1, %r2, {producer}; and.pred %p0, %p1, %p3;
  shl.b32 %r13, %r4, 2; add.u32 %r14, %r8, %r13; add.u32 %r15, %r9, %r13;
"""


class Kernel(Producer, Consumer):
    """`text` is a kernel for `grid` blocks of `threads`, `fault` the step that is wrong in it, or an empty word."""

    def __init__(self, seed):
        super().__init__(seed)
        self._begin()
        if self.producer == "among":
            self._tiles(self._shared_round)
        else:
            self._apart()
        self._end()
        text = "\n".join([*self._lines, "  ret;\n}\n"])
        old, new = self.spelling
        self.text = text.replace(old, new) if old else text

    # Begin and end

    def _begin(self):
        sizes = {"buffers": self.buffers * 512, "scratch": 4 * self.consumers}
        inside = f"  .shared .align 1024 .b8 stage[{self.stage_bytes()}];\n"
        before = ""
        if self.dynamic:
            inside, before = "", ".extern .shared .align 1024 .b8 stage[];\n"
        first, producer = (32, 0) if self.producer == "first" else (0, self.warps)
        if self.producer == "among":
            producer = 0
        self._lines.append(
            HEAD.format(sign=self.sign, before=before, inside=inside, first=first, producer=producer, **sizes).rstrip(
                "\n"
            )
        )
        if self.elects:
            self._line("elect.sync %r61|%p7, -1;", "and.pred %p0, %p1, %p7;")
        if self.prefetches:
            self._line("@%p0 prefetch.tensormap [%rd0];")
        if self.hinted:
            self._line("createpolicy.fractional.L2::evict_first.b64 %rd17, 1.0;")
        if self.multiplies:
            self._descriptors()
        self._init()
        self._line("mov.u32 %r10, 1;")

    def _descriptors(self):
        """Of tiles in rows of 32 bytes or without a swizzle: A of 2,048 bytes, behind it B of 256."""
        self._line("shr.u32 %r62, %r5, 4; cvt.u64.u32 %rd10, %r62;")
        for register, lead, at in (("%rd11", 1024, 0), ("%rd12", 128, 2048)):
            fields = (
                3 << 62 | (256 >> 4) << 32
                if (self.swizzle == "32B") != (self.fault == "swizzle")
                else (128 >> 4) << 32 | (lead >> 4) << 16
            )
            self._line(f"mov.b64 {register}, {hex(fields)}; or.b64 {register}, {register}, %rd10;")
            self._line(f"add.u64 {register}, {register}, {at >> 4};")

    def _init(self):
        counts = {"warps": self.warps, "group": 1}
        empty = counts.get(self.released_by, self.consumers)
        empty += (self.fault == "empty count") * (1 if self.stages % 2 else -1)
        full = 32 if self.kind == "stores" and self.stored_by != "lane" else 1
        self._line("@!%p0 bra READY;")
        if self.meets_by == "mbarrier":
            self._line(f"mbarrier.init.shared::cta.b64 [%r18], {self.consumers};")
        for stage in range(self.stages):
            if self.full == "mbarrier" and not (self.fault == "init" and not stage):
                self._line(f"mbarrier.init.shared::cta.b64 [%r6+{8 * stage}], {full};")
            if self.empty == "mbarrier":
                self._line(f"mbarrier.init.shared::cta.b64 [%r7+{8 * stage}], {max(1, empty)};")
        if self.fault == "second init":
            self._line(f"mbarrier.init.shared::cta.b64 [%r6], {full};")
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
        if self.output != "bulk":
            self._line(f"mul.lo.u32 %r59, %r55, {self.warps};")
            opcode = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
            if self.output == "reduce":
                opcode = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
            self._line(f"@%p4 {opcode} [%rd2, {{0, %r59}}], [%r58];")
        else:
            self._line(f"mul.wide.u32 %rd6, %r55, {4 * self.consumers}; add.u64 %rd6, %rd6, %rd3;")
            opcode = "cp.async.bulk.global.shared::cta.bulk_group"
            self._line(f"@%p4 {opcode} [%rd6], [%r58], {4 * self.consumers};")
