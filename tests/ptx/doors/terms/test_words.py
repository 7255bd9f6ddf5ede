"""Hints speak of what the front end of a kernel has, and of nothing else."""

import sys
from types import ModuleType

import pytest

from kernbench.ptx.doors.terms.words import CUDA, CUPY, CUTE, NUMBA, TRITON, words_of
from kernbench.ptx.emulator.checks.memory import memory, undefined
from kernbench.result.finding import Finding

HINTS = [
    memory._POINTER_HINT,
    memory._UNWRITTEN_HINT,
    memory._BLOCK_HINT,
    memory._RACE_HINTS["shared"],
    undefined._GLOBAL_HINT,
]


@pytest.mark.parametrize(
    ("words", "others"),
    [
        (CUDA, ("torch", "tensor", "Triton", "device.array", "kernbench")),
        (CUPY, ("torch", "tensor", "Triton", "cudaM", "kernbench")),
        (NUMBA, ("torch", "tensor", "Triton", "cudaM", "__sync", "kernbench")),
        (CUTE, ("Triton", "cudaM", "__sync", "kernbench")),
        (TRITON, ("cudaM", "device.array", "kernbench's")),
    ],
)
def test_a_hint_names_what_one_front_end_has(words, others):
    for hint in HINTS:
        own = words.put(hint)
        assert own != hint or hint == memory._RACE_HINTS["shared"]
        assert not [name for name in others if name in own]


def test_an_access_out_of_bounds_in_tritons_words():
    hint = TRITON.put(memory._BOUNDS_HINT + memory._WRAPPED_HINT)
    assert "mask=offsets < size" in hint
    assert ".to(tl.int64)" in hint
    assert CUDA.put(memory._BOUNDS_HINT) == memory._BOUNDS_HINT


def test_findings_keep_all_else():
    finding = Finding("race", "two threads", hint=memory._BLOCK_HINT, count=3)
    (fitted,) = NUMBA.fit([finding])
    assert (fitted.kind, fitted.message, fitted.count) == ("race", "two threads", 3)
    assert fitted.hint == "separate them by a barrier of the block (cuda.syncthreads)"


def test_the_front_end_is_known_by_the_kernels_name_and_by_what_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert words_of("_ZN6cudapy8__main__5twiceB2v1") is NUMBA
    assert words_of("_ZN8__main__3addB3v12B94cw51cXTLSUwv1sCUt9Uw1VEw0NRRQPKzLTg4gaGKFsG2oMQGEYakJSQB1") is NUMBA
    assert words_of("kernel_cutlass_twice_tensorptr") is CUTE
    assert words_of("_Z3addPf") is CUDA
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    assert words_of("_Z3addPf") is CUPY
