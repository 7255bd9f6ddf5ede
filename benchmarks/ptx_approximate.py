"""Every argument of every approximate function on a GPU and on the emulator, and how many results differ in their bits.

    python benchmarks/ptx_approximate.py                       # all 2^32 arguments of each form, in minutes of 16 cores
    python benchmarks/ptx_approximate.py --forms tanh --keep tanh.pkl    # and the first results that differ, kept
    python benchmarks/ptx_approximate.py --device emulator --stride 65537    # without a GPU: that the script runs

A division takes every divisor, with one dividend for each. NaN counts as equal to the same bits only.
"""

import argparse
import os
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.ptx.numerics import operation

Codes = NDArray[np.unsignedinteger]
COUNT, BLOCK = 1 << 25, 256
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 start, .param .u32 stride){
 .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .b16 %h<4>;
 mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
 ld.param.u64 %rd0, [out]; ld.param.u32 %r3, [start]; ld.param.u32 %r6, [stride];
 mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; mad.lo.u32 %r4, %r0, %r6, %r3;
 OPERATION
 st.global.b32 [%rd0], %r5; ret; }
"""
SINGLE = "mov.b32 %f0, %r4; {form} %f1, %f0; mov.b32 %r5, %f1;"
QUOTIENT = (
    "mul.lo.u32 %r7, %r4, -1640531535; mov.b32 %f2, %r7; mov.b32 %f0, %r4; {form} %f1, %f2, %f0; mov.b32 %r5, %f1;"
)
HALF = "cvt.u16.u32 %h0, %r4; {form} %h1, %h0; cvt.u32.u16 %r5, %h1;"
PACKED = "mul.lo.u32 %r4, %r4, 65537; {form} %r5, %r4;"


class Form(NamedTuple):
    """An instruction: what stands in the kernel, how many arguments it has, and the emulator's function."""

    name: str
    body: str
    arguments: int
    run: Callable[[Codes], Codes]


def _single(name: str, mods: dict[str, str]) -> Callable[[Codes], Codes]:
    function = operation(name, mods)

    def run(codes: Codes) -> Codes:
        out = np.empty_like(codes)
        function(codes, out)
        return out

    return run


def _quotient(mods: dict[str, str]) -> Callable[[Codes], Codes]:
    function = operation("div.float", mods)

    def run(codes: Codes) -> Codes:
        out = np.empty_like(codes)
        function(codes * np.uint32(-1640531535 % 2**32), codes, out)
        return out

    return run


def _half(name: str, mods: dict[str, str]) -> Callable[[Codes], Codes]:
    single = _single(name, mods)
    return lambda codes: single(codes.astype(np.uint16)).astype(np.uint32)


def _packed(name: str, mods: dict[str, str]) -> Callable[[Codes], Codes]:
    single = _single(name, mods)
    return lambda codes: single(codes * np.uint32(65537))


def forms() -> Iterator[Form]:
    """All forms that have an H200's bits here or should."""
    for name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"):
        for flush in ("", ".ftz") if name != "tanh" else ("",):
            mods = {"mode": "approx", "type": "f32"} | ({"ftz": "ftz"} if flush else {})
            yield Form(f"{name}.approx{flush}.f32", SINGLE, 1 << 32, _single(name, mods))
    for mode in ("approx", "full"):
        for flush in ("", ".ftz"):
            mods = {"mode": mode, "type": "f32"} | ({"ftz": "ftz"} if flush else {})
            yield Form(f"div.{mode}{flush}.f32", QUOTIENT, 1 << 32, _quotient(mods))
    for name, flush, kind in (("ex2", "", "f16"), ("ex2", ".ftz", "bf16"), ("tanh", "", "f16"), ("tanh", "", "bf16")):
        mods = {"mode": "approx"} | ({"ftz": "ftz"} if flush else {})
        yield Form(f"{name}.approx{flush}.{kind}", HALF, 1 << 16, _half(name, mods | {"type": kind}))
        yield Form(f"{name}.approx{flush}.{kind}x2", PACKED, 1 << 16, _packed(name, mods | {"type": f"{kind}x2"}))


class Part(NamedTuple):
    """What came of some arguments of a form: how many differ, by their upper nine bits, and the first of them."""

    compared: int
    by_exponent: NDArray[np.int64]
    # argument, ours, theirs
    first: NDArray[np.uint32]


_DEVICES: dict[str, ptx.CudaDevice | ptx.EmulatedDevice] = {}
_FORMS: dict[str, Form] = {}


def part(task: tuple[str, str, int, int, int]) -> Part:
    """`count` arguments from `start` on, on the device of this process and here."""
    kind, name, start, count, stride = task
    if not _DEVICES:
        _DEVICES[kind] = ptx.CudaDevice(0) if kind == "cuda" else ptx.EmulatedDevice("sm_90")
        _FORMS.update((form.name, form) for form in forms())
    device, form = _DEVICES[kind], _FORMS[name]
    kernel = ptx.parse(TEXT.replace("OPERATION", form.body.format(form=form.name))).kernels["k"]
    out = device.array(np.zeros(count, np.uint32))
    device.launch(kernel, count // BLOCK, BLOCK, [out, start % 2**32, stride])
    theirs = out.numpy()
    codes = (np.arange(count, dtype=np.uint64) * np.uint64(stride) + np.uint64(start)).astype(np.uint32)
    ours = form.run(codes)
    at = np.flatnonzero(ours != theirs)
    by_exponent = np.bincount(codes[at] >> np.uint32(23), minlength=512)
    return Part(count, by_exponent, np.stack((codes[at], ours[at], theirs[at]))[:, :4096].astype(np.uint32))


def tasks(kind: str, form: Form, stride: int) -> Iterator[tuple[str, str, int, int, int]]:
    """All arguments of a form, or each `stride`-th, in parts."""
    stride = stride if form.arguments > 1 << 16 else 1
    total = -(-form.arguments // stride)
    for first in range(0, total, COUNT):
        yield kind, form.name, first * stride, -(-min(COUNT, total - first) // BLOCK) * BLOCK, stride


def show(form: Form, found: list[Part], seconds: float) -> NDArray[np.uint32]:
    """Print the line of a form; what differs first."""
    by_exponent = sum((one.by_exponent for one in found), np.zeros(512, np.int64))
    compared, wrong = sum(one.compared for one in found), int(by_exponent.sum())
    print(f"{form.name:24} {compared:>13,} compared {wrong:>13,} differ  {seconds:6.1f} s", flush=True)
    first = np.concatenate([one.first for one in found], axis=1)
    if wrong:
        codes, ours, theirs = (int(value) for value in first[:, 0])
        print(f"    first {codes:#010x}: here {ours:#010x}, device {theirs:#010x}", end="")
        print(f"; upper nine bits {np.flatnonzero(by_exponent)[:24].tolist()}", flush=True)
    return first


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description="Approximate functions of a GPU and of the emulator, bit for bit.")
    parser.add_argument("--forms", default="", help="only forms whose name begins so")
    parser.add_argument("--stride", type=int, default=1, help="take each so-manieth argument only")
    parser.add_argument("--device", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--keep", default="", help="file for the first results that differ (pickle)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    kept = {}
    # each process has its own context of the GPU
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for form in forms():
            if form.name.startswith(given.forms):
                began = time.monotonic()
                found = list(pool.map(part, tasks(given.device, form, given.stride)))
                kept[form.name] = show(form, found, time.monotonic() - began)
    if given.keep:
        with open(given.keep, "wb") as file:
            pickle.dump(kept, file)


if __name__ == "__main__":
    main()
