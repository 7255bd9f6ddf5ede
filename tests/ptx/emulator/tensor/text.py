"""The text of a kernel with tcgen05, line by line: what stands around the steps, and the lines that synchronise."""

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.shared .align 8 .b64 bars[{bars}];
.shared .align 4 .b32 slots[8];
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .u64 image, .param .u64 table, .param .u64 out){cluster}
{{
  .reg .pred %p<8>;
  .reg .b16 %both;
  .reg .b32 %r<32>;
  .reg .b32 %mask<8>;
  .reg .b32 %slot<8>;
  .reg .b64 %rd<12>;
  .reg .b32 %d<128>;
  .reg .b32 %e<128>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd2, [table];
  ld.param.u64 %rd3, [out];
  mov.b16 %both, {blocks};
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  mov.u32 %r2, tiles;
  mov.u32 %r6, %ctaid.x;
  mov.u32 %r5, %cluster_ctarank;
  setp.ne.u32 %p0, %r5, 0;
  // the warp that allocates, the thread that issues, the four warps that load and store
  setp.eq.u32 %p2, %r1, {allocates};
  mad.lo.u32 %r3, %r5, 1000, %r0;
  setp.eq.u32 %p3, %r3, {issues};
  sub.u32 %r7, %r0, {first};
  setp.lt.u32 %p4, %r7, 128;
  shr.u32 %r4, %r7, 5;
  shl.b32 %r4, %r4, 21;
  mad.lo.u32 %r8, %r6, 128, %r7;
  mul.wide.u32 %rd4, %r6, {nbytes};
  add.u64 %rd1, %rd1, %rd4;
  shl.b32 %r10, %r0, 4;
COPY:
  setp.ge.u32 %p1, %r10, {nbytes};
  @%p1 bra COPIED;
  cvt.u64.u32 %rd4, %r10;
  add.u64 %rd4, %rd4, %rd1;
  ld.global.v4.u32 {{%r11, %r12, %r13, %r14}}, [%rd4];
  add.u32 %r15, %r2, %r10;
  st.shared.v4.u32 [%r15], {{%r11, %r12, %r13, %r14}};
  add.u32 %r10, %r10, {step};
  bra COPY;
COPIED:
  cvt.u64.u32 %rd5, %r2;
  shr.u64 %rd5, %rd5, 4;
  setp.eq.u32 %p5, %r0, 0;
"""
CLUSTER = ["barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"]


class Text:
    """Lines of a kernel; each is known by its number, and can be left out or changed later."""

    def __init__(self, head):
        self.lines = head.rstrip("\n").split("\n")
        self.labels = 0

    def add(self, line):
        """Append a line; its number."""
        self.lines.append(line if line.endswith(":") else f"  {line}")
        return len(self.lines)

    def label(self, name):
        self.labels += 1
        return f"{name}{self.labels}"

    def changed(self, edits):
        """The whole text, with other lines in the place of some, by number; None for no line there."""
        lines = list(self.lines)
        for number, line in edits.items():
            lines[number - 1] = "  // left out" if line is None else f"  {line}"
        return "\n".join([*lines, "}", ""])


class Synchronised(Text):
    """What orders the steps: barriers of threads, mbarriers of commits, and the fences around them."""

    def __init__(self, head, group, threads):
        super().__init__(head)
        self.group, self.threads = group, threads
        # phases that each mbarrier for commits has been through
        self.phases = [0] * 8

    def barrier(self):
        """All threads of the CTA, or of both; the numbers of the lines."""
        if self.group == 2:
            return [self.add(line) for line in CLUSTER]
        return [self.add("bar.sync 0;")]

    def waited(self, number):
        """All threads wait for the next phase of an mbarrier: the line that asks, and all of it."""
        label, parity = self.label("WAIT"), self.phases[number] % 2
        self.phases[number] += 1
        asked = f"mbarrier.try_wait.parity.shared::cta.b64 %p6, [bars+{8 * number}], "
        lines = [self.add(f"{label}:"), self.add(f"{asked}{parity};"), self.add(f"@!%p6 bra {label};")]
        return lines, {lines[1]: f"{asked}{1 - parity};"}

    def commit(self, number, spread):
        base = f"@%p3 tcgen05.commit.cta_group::{self.group}.mbarrier::arrive::one.shared::cluster"
        if self.group == 2 or spread:
            return self.add(f"{base}.multicast::cluster.b64 [bars+{8 * number}], %both;")
        return self.add(f"{base}.b64 [bars+{8 * number}];")
