"""What there is to ask a GPU about its arithmetic, in one command: whatever it answers is compared with the emulator.

    python benchmarks/ptx_probes.py --keep answers.npz       # on any GPU: a few minutes
    python benchmarks/ptx_probes.py --only tiles             # or instructions, approximate
    python benchmarks/ptx_probes.py --device emulator        # without a GPU: that the script runs

Instructions: every case of `kernbench.ptx.conformance`. Approximate functions: arguments all over the range
(`ptx_approximate.py` takes all of them). Tiles: products of `wgmma` (sm_90) or `tcgen05.mma` (sm_100, sm_103), one
instruction each, with numbers that show how terms are cut and added: one large term among small ones, terms that
cancel, exponents far apart, infinities and NaN. `--keep` writes inputs and answers, from which a rule can be found.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.common.errors import KernbenchError
from kernbench.ptx.conformance import CASES, compare, inputs_for, run_case, source
from kernbench.ptx.devices.cuda_driver import unavailable

Device = ptx.CudaDevice | ptx.EmulatedDevice
Words = NDArray[np.uint32]
NO_GPU = 2
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
# D, A, B, the elements of a row of A, and what tcgen05 calls the kind
FORMS = (
    ("f32", "f16", "f16", 16, "f16"),
    ("f16", "f16", "f16", 16, "f16"),
    ("f32", "bf16", "bf16", 16, "f16"),
    ("f32", "tf32", "tf32", 8, "tf32"),
    ("f32", "e4m3", "e4m3", 32, "f8f6f4"),
    ("f32", "e5m2", "e4m3", 32, "f8f6f4"),
    ("f16", "e4m3", "e4m3", 32, "f8f6f4"),
)
COLUMNS = 8

# tiles lie as core matrices of 8 rows of 16 bytes, without a swizzle; those of a step of K follow on the one before
HEAD = """.version {version}
.target {arch}
.address_size 64
.shared .align 8 .b64 done;
.shared .align 4 .b32 slot;
.extern .shared .align 1024 .b8 tiles[];
.visible .entry k(.param .u64 image, .param .u64 out, .param .u32 words, .param .u64 a, .param .u64 b)
{{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<12>; .reg .b32 %d<8>;
  ld.param.u64 %rd1, [image]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [words];
  ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b];
  mov.u32 %r0, %tid.x; mov.u32 %r2, tiles; mov.u32 %r3, %r0;
COPY:
  mul.wide.u32 %rd5, %r3, 4; add.u64 %rd5, %rd5, %rd1; ld.global.u32 %r4, [%rd5];
  shl.b32 %r5, %r3, 2; add.u32 %r5, %r5, %r2; st.shared.u32 [%r5], %r4;
  add.u32 %r3, %r3, 128; setp.lt.u32 %p1, %r3, %r1; @%p1 bra COPY;
  shr.u32 %r6, %r2, 4; cvt.u64.u32 %rd6, %r6; add.u64 %rd3, %rd3, %rd6; add.u64 %rd4, %rd4, %rd6;
  setp.eq.u32 %p3, %r0, 0; shr.u32 %r7, %r0, 5; setp.eq.u32 %p2, %r7, 0; setp.ne.b32 %p5, 0, 0;
"""
WGMMA = """
  fence.proxy.async; bar.sync 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k{k}.{d}.{a}.{b} {{{registers}}}, %rd3, %rd4, %p5, 1, 1{tail};
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
TCGEN05 = """
  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
  @%p3 mbarrier.init.shared::cta.b64 [done], 1;
  @%p3 fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta; bar.sync 0;
  ld.shared.u32 %r8, [slot]; mov.u32 %r10, {idesc};
  @%p3 tcgen05.mma.cta_group::1.kind::{kind} [%r8], %rd3, %rd4, %r10, %p5;
  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];
WAITING:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 0;
  @!%p4 bra WAITING;
  tcgen05.fence::after_thread_sync;
  shl.b32 %r9, %r7, 21; add.u32 %r9, %r8, %r9;
  tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{registers}}}, [%r9];
  tcgen05.wait::ld.sync.aligned;
"""
AFTER = """
  bar.sync 0;
  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
"""
FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1}
RESULTS = {"f16": 0, "f32": 1}


@dataclass(frozen=True)
class Unit:
    """The tensor core of an architecture: rows of A, and how many registers of D a thread stores."""

    arch: str
    tensor_memory: bool

    @property
    def rows(self) -> int:
        """Rows of A that one instruction takes."""
        return 128 if self.tensor_memory else 64

    def registers(self, d: str) -> int:
        """Registers of D in a thread."""
        return 8 if self.tensor_memory else 2 if d == "f16" else 4

    def text(self, form: tuple[str, str, str, int, str]) -> str:
        """The kernel for one product."""
        d, a, b, k, kind = form
        count = self.registers(d)
        registers = ", ".join(f"%d{i}" for i in range(count))
        idesc = RESULTS[d] << 4 | FORMATS[a] << 7 | FORMATS[b] << 10 | (COLUMNS >> 3) << 17 | (self.rows >> 4) << 24
        tail = ", 0, 0" if k == 16 else ""
        middle = TCGEN05 if self.tensor_memory else WGMMA
        head = HEAD.format(version="8.7" if self.tensor_memory else "8.4", arch=self.arch)
        body = middle.format(k=k, d=d, a=a, b=b, registers=registers, tail=tail, idesc=idesc, kind=kind)
        store = f"mul.wide.u32 %rd7, %r0, {4 * count}; add.u64 %rd7, %rd7, %rd2;\n"
        store += "".join(f"st.global.b32 [%rd7+{4 * i}], %d{i};\n" for i in range(count))
        return head + body + store + (AFTER if self.tensor_memory else "") + "ret;\n}\n"


def unit_of(arch: str) -> Unit | None:
    """The tensor core of a GPU; None where products are of `mma.sync` alone."""
    units = {"sm_90": Unit("sm_90a", False), "sm_100": Unit("sm_100a", True), "sm_103": Unit("sm_103a", True)}
    return units.get(arch.rstrip("af"))


def probes(rows: int, k: int, a: str, b: str) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Name, A [rows, k] and B [columns, k] of tiles made to show how terms are added."""
    rng = np.random.default_rng(k)
    narrow = a in ("e4m3", "e5m2")
    reach = 6 if narrow else 12
    yield "random", rng.standard_normal((rows, k)), rng.standard_normal((COLUMNS, k))
    far = [2.0 ** rng.integers(-reach, reach + 1, (count, k)) for count in (rows, COLUMNS)]
    yield "exponents apart", rng.standard_normal((rows, k)) * far[0], rng.standard_normal((COLUMNS, k)) * far[1]
    # one large term: row r has 2^(r % reach) in one position, and small ones of growing size elsewhere
    large = np.full((rows, k), 1.0 + 2.0**-3)
    large[:, 0] = 2.0 ** (np.arange(rows) % reach)
    yield "one large", large, 2.0 ** -np.arange(COLUMNS)[:, None] * np.ones((COLUMNS, k))
    cancels = large.copy()
    cancels[:, -1] = -cancels[:, 0]
    yield "cancels", cancels, np.ones((COLUMNS, k)) * (1 + 2.0 ** -np.arange(1, COLUMNS + 1)[:, None])
    each = np.zeros((rows, k))
    each[np.arange(rows), np.arange(rows) % k] = 2.0 ** -(np.arange(rows) % reach)
    each[:, 0] += 2.0**reach
    yield "one small", each, np.ones((COLUMNS, k))
    # products about the least normal number of D and below it; operands of wide types are subnormal now and then
    wide = a in ("bf16", "tf32")
    for name, low, span in (
        (("tiny", -118, 20), ("tinier", -133, 16)) if wide else (("tiny", -12 if a == "f16" else -4, 4),)
    ):
        tiny = [2.0 ** rng.integers(low - span, low + span, (rows, k)), 2.0 ** rng.integers(-2 * span, 1, (COLUMNS, k))]
        yield name, rng.standard_normal((rows, k)) * tiny[0], rng.standard_normal((COLUMNS, k)) * tiny[1]
    strange = rng.standard_normal((rows, k))
    strange[::3, 1], strange[1::3, 2] = (448.0, np.nan) if a == "e4m3" else (np.inf, np.nan)
    yield "infinities", strange, np.where(rng.random((COLUMNS, k)) < 0.2, 0.0, rng.standard_normal((COLUMNS, k)))


def cut(values: NDArray[np.float64], kind: str) -> NDArray[np.generic]:
    """Numbers of a type; tf32 has ten bits of an f32's fraction."""
    made = values.astype(np.float32).astype(DTYPES[kind])
    if kind == "tf32":
        return (made.view(np.uint32) & np.uint32(0xFFFF_E000)).view(np.float32)
    return made


def image(tile: NDArray[np.generic]) -> NDArray[np.uint8]:
    """A tile as it lies in shared memory."""
    rows = len(tile)
    octets = np.ascontiguousarray(tile).view(np.uint8).reshape(rows // 8, 8, -1, 16)
    return np.ascontiguousarray(octets.transpose(2, 0, 1, 3)).reshape(-1)


def descriptor(start: int, rows: int, unit: Unit) -> int:
    """What names a tile: its start, and the bytes from step to step of K and from eight rows to the next."""
    bits = start >> 4 | (rows // 8 * 128) >> 4 << 16 | 128 >> 4 << 32
    return bits | 1 << 46 if unit.tensor_memory else bits


def multiplied(device: Device, unit: Unit, form: tuple[str, str, str, int, str], a: object, b: object) -> Words:
    """What a device's tensor core leaves in the registers of D."""
    first, second = (image(np.asarray(tile)) for tile in (a, b))
    data = np.concatenate([first, second])
    out = device.array(np.zeros((128, unit.registers(form[0])), np.uint32))
    kernel = ptx.parse(unit.text(form)).kernels["k"]
    given = [device.array(data), out, len(data) // 4, descriptor(0, unit.rows, unit)]
    given.append(descriptor(len(first), COLUMNS, unit))
    exact = {"exact": True} if isinstance(device, ptx.EmulatedDevice) else {}
    device.launch(kernel, 1, 128, given, shared_bytes=len(data), **unchecked(device), **exact)  # type: ignore[arg-type]
    words: Words = out.numpy()
    return words


def unchecked(device: Device) -> dict[str, bool]:
    """What keeps the emulator from looking for faults; a GPU does not."""
    return {"checks": False} if isinstance(device, ptx.EmulatedDevice) else {}


def tiles(device: Device, emulated: ptx.EmulatedDevice, kept: dict[str, NDArray[np.generic]]) -> int:
    """Compare products of tiles; how many words differ."""
    unit = unit_of(device.arch)
    if unit is None:
        print(f"tiles: {device.arch} has neither wgmma nor tcgen05; its mma.sync is among the instructions")
        return 0
    total = 0
    for form in FORMS:
        for name, a, b in probes(unit.rows, form[3], *form[1:3]):
            left, right = cut(a, form[1]), cut(b, form[2])
            ours, theirs = (multiplied(one, unit, form, left, right) for one in (emulated, device))
            differ = int(np.count_nonzero(ours != theirs))
            total += differ
            label = f"{'.'.join(form[:3])} k{form[3]} {name}"
            print(f"{label:36} {differ:>6} of {ours.size:>6} words differ", flush=True)
            raw = {"a": left, "b": right, "d": theirs}
            kept.update({f"{label} {part}": value.view(np.uint8) for part, value in raw.items()})
    return total


def instructions(device: Device, emulated: ptx.EmulatedDevice, kept: dict[str, NDArray[np.generic]]) -> int:
    """Compare every case of the table; how many cases differ."""
    total = 0
    for case in CASES:
        kernel = ptx.parse(source(case)).kernels["apply"]
        given = inputs_for(case)
        ours = run_case(emulated, kernel, case, given, checks=False)
        try:
            theirs = run_case(device, kernel, case, given, **unchecked(device))
        except KernbenchError as problem:
            print(f"{case.name:48} not run: {problem}")
            continue
        agreement = compare(ours, theirs, case.output.type)
        if not agreement.equal:
            total += 1
            print(f"{case.name:48} {agreement}", flush=True)
            kept[case.name] = theirs
    print(f"instructions: {total} of {len(CASES)} differ")
    return total


def approximate(device: Device, stride: int) -> int:
    """Compare approximate functions by the script that knows them; how many results differ."""
    kind = "emulator" if isinstance(device, ptx.EmulatedDevice) else "cuda"
    script = Path(__file__).with_name("ptx_approximate.py")
    command = [sys.executable, str(script), "--device", kind, "--stride", str(stride)]
    total = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found = re.search(r"compared +([\d,]+) differ", line)
            total += int(found[1].replace(",", "")) if found else 0
    return total


PARTS = ("tiles", "instructions", "approximate")


def main(words: Sequence[str] | None = None) -> int:
    """Ask, compare, and keep the answers; the number of differences is not an error."""
    parser = argparse.ArgumentParser(description="Ask a GPU about its arithmetic, and compare it with the emulator.")
    parser.add_argument("--device", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--arch", default="sm_90a", help="of the emulator, with --device emulator")
    parser.add_argument("--only", choices=PARTS, default=None)
    parser.add_argument("--stride", type=int, default=4099, help="take each so-manieth argument of a function")
    parser.add_argument("--keep", default="", help="file for inputs and answers (.npz)")
    given = parser.parse_args(words)
    if given.device == "cuda" and (why := unavailable()):
        print(f"no GPU to ask: {why}", file=sys.stderr)
        return NO_GPU
    device: Device = ptx.CudaDevice(0) if given.device == "cuda" else ptx.EmulatedDevice(given.arch)
    unit = unit_of(device.arch)
    emulated = ptx.EmulatedDevice(unit.arch if unit is not None else "sm_90a")
    kept: dict[str, NDArray[np.generic]] = {}
    found: dict[str, int] = {}
    if given.only in (None, "tiles"):
        found["tiles"] = tiles(device, emulated, kept)
    if given.only in (None, "instructions"):
        found["instructions"] = instructions(device, emulated, kept)
    if given.only in (None, "approximate"):
        found["approximate"] = approximate(device, given.stride)
    print(f"{device!r}: " + ", ".join(f"{name} {number:,} differ" for name, number in found.items()))
    if given.keep:
        np.savez_compressed(given.keep, **kept)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main())
