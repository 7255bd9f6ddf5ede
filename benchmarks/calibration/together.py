"""What CTAs do to each other: bytes that each CTA of an SM reads again and again, and flags that go round all SMs."""

import ctypes
from collections.abc import Iterator
from statistics import median
from typing import Any

from .launch_gaps import Queue
from .source import opened

REPEATED, DROPPED = 12, 2
TURNS, BYTES = (8, 40), (8, 16, 32, 64, 96, 128, 192)
CTAS = (1, 2, 4, 8)
_PARAMETERS = {"p_data": "u64", "p_turns": "u32", "p_bytes": "u32"}
_HEAD = (
    opened("kernel", _PARAMETERS, {"pred %p": 8, "b32 %r": 32, "b64 %d": 8}, version="8.6")
    + """ld.param.u64 %d0, [p_data];
ld.param.u32 %r9, [p_turns];
ld.param.u32 %r8, [p_bytes];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %nctaid.x;
"""
)
_AGAIN = """mul.wide.u32 %d1, %r1, %r8;
add.u64 %d1, %d0, %d1;
mul.wide.u32 %d2, %r0, 16;
add.u64 %d1, %d1, %d2;
mov.u32 %r20, 0;
mov.u32 %r4, 0;
turn:
mov.u32 %r5, 0;
mov.u64 %d3, %d1;
piece:
ld.global.ca.v4.u32 {%r10, %r11, %r12, %r13}, [%d3];
ld.global.ca.v4.u32 {%r14, %r15, %r16, %r17}, [%d3+4096];
add.u32 %r20, %r20, %r10;
add.u32 %r20, %r20, %r14;
add.u64 %d3, %d3, 8192;
add.u32 %r5, %r5, 8192;
setp.lt.u32 %p1, %r5, %r8;
@%p1 bra piece;
add.u32 %r4, %r4, 1;
setp.lt.u32 %p2, %r4, %r9;
@%p2 bra turn;
setp.ne.u32 %p3, %r20, 12345;
@%p3 bra done;
st.global.u32 [%d0], %r20;
done:
ret;
}
"""
# CTA n waits until its flag has the number of the turn, then gives it to the next one; the first waits for the last
_RING = """setp.ne.u32 %p0, %r0, 0;
@%p0 bra done;
mul.wide.u32 %d1, %r1, 128;
add.u64 %d1, %d0, %d1;
add.u32 %r10, %r1, 1;
rem.u32 %r10, %r10, %r2;
mul.wide.u32 %d2, %r10, 128;
add.u64 %d2, %d0, %d2;
mov.u32 %r6, 0;
turn:
mov.u32 %r7, %r6;
add.u32 %r6, %r6, 1;
setp.ne.u32 %p3, %r1, 0;
@%p3 mov.u32 %r7, %r6;
look:
LOAD
setp.lt.u32 %p2, %r5, %r7;
@%p2 bra look;
STORE
setp.lt.u32 %p1, %r6, %r9;
@%p1 bra turn;
done:
ret;
}
"""
WAYS = {
    "relaxed": ("ld.relaxed.gpu.global.u32 %r5, [%d1];", "st.relaxed.gpu.global.u32 [%d2], %r6;"),
    "acquire": ("ld.acquire.gpu.global.u32 %r5, [%d1];", "st.release.gpu.global.u32 [%d2], %r6;"),
    "volatile": ("ld.volatile.global.u32 %r5, [%d1];", "membar.gl;\nst.volatile.global.u32 [%d2], %r6;"),
}


def again_text() -> str:
    """A kernel whose CTAs each read bytes of their own, 8 KiB at a time, turn after turn."""
    return _HEAD + _AGAIN


def ring_text(way: str) -> str:
    """A kernel in which a flag goes round all CTAs."""
    load, store = WAYS[way]
    return _HEAD + _RING.replace("LOAD", load).replace("STORE", store)


class _Timed:
    def __init__(self, queue: Queue, nbytes: int):
        self.queue, self.nbytes = queue, nbytes
        self.data = queue.driver.call("cuMemAlloc", nbytes)

    def launched(self, text: str, ctas: int, block: int, turns: int, nbytes: int) -> float:
        """Nanoseconds of a launch, the median of several, each with zeros in memory."""
        kernel = self.queue.function("kernel", text)
        values = (ctypes.c_uint64(int(self.data)), ctypes.c_uint32(turns), ctypes.c_uint32(nbytes))
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        found: list[float] = []
        for _ in range(REPEATED):
            self.queue.driver.call("cuMemsetD8Async", self.data, 0, self.nbytes, self.queue.stream)
            first = self.queue.event()
            self.queue.driver.call(
                "cuLaunchKernel", kernel, ctas, 1, 1, block, 1, 1, 0, self.queue.stream, ctypes.addressof(pointers), 0
            )
            found.append(self.queue.elapsed_ns(first, self.queue.event()))
        return median(found[DROPPED:])


def together_rows(queue: Queue, sms: int) -> Iterator[dict[str, Any]]:
    """Rows: nanoseconds of a turn by CTAs of an SM and bytes of each, and of a launch by turns of a ring."""
    timed = _Timed(queue, CTAS[-1] * sms * BYTES[-1] << 10)
    for ctas in CTAS:
        for kib in BYTES:
            few, many = (timed.launched(again_text(), ctas * sms, 256, turns, kib << 10) for turns in TURNS)
            varied = {"ctas": ctas, "kib": kib}
            yield {"benchmark": "l1.together", "parameters": varied, "unit": "ns",
                   "ns": (many - few) / (TURNS[1] - TURNS[0])}  # fmt: skip
    for way in WAYS:
        for turns in (1, 4, 16):
            by_way: dict[str, Any] = {"way": way, "ctas": sms, "turns": turns}
            yield {"benchmark": "handover.ring", "parameters": by_way, "unit": "ns",
                   "ns": timed.launched(ring_text(way), sms, 32, turns, 0)}  # fmt: skip
    queue.driver.call("cuMemFree", timed.data)
