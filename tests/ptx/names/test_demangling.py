"""C++ names are shown, and taken, as people write them."""

import random
import shutil
import subprocess

import pytest
from tests import sampled

from kernbench import ptx
from kernbench.common.errors import BenchError
from kernbench.ptx.front.launch_file import choose_kernel
from kernbench.ptx.names.demangling import choose, demangled, title

NAMES = {
    "_Z5scaleIfLi2EEvPT_": "void scale<float, 2>(float*)",
    "_Z7softmaxIfLi256EEvPKT_PS0_i": "void softmax<float, 256>(float const*, float*, int)",
    "_ZN7project6kernelE5ShapePf": "project::kernel(Shape, float*)",
    "_ZN7cutlass13device_kernelINS_4GemmIN4cute5tupleIJNS2_1CILi128EEENS4_ILi64EEEEEEEEEEvNT_6ParamsE": (
        "void cutlass::device_kernel<cutlass::Gemm<cute::tuple<cute::C<128>, cute::C<64>>>>"
        "(cutlass::Gemm<cute::tuple<cute::C<128>, cute::C<64>>>::Params)"
    ),
    "_ZZ3fooIiEvT_ENKUlvE_clEv": "foo<int>(int)::{lambda()#1}::operator()() const",
    "_Z1fIZ4mainEUlT_E_EvT_": "void f<main::{lambda(auto:1)#1}>(main::{lambda(auto:1)#1})",
    "_ZN12_GLOBAL__N_11fEv": "(anonymous namespace)::f()",
    "_ZN44_GLOBAL__N__d54d8b9d_7_test_cu_aaaaaaaa_12341gEv": "(anonymous namespace)::g()",
    "__nv_static_41__0bcc1d2e_19_simpleAttributes_cu_f352f5dd__Z4testPii": "test(int*, int)",
    "__nv_static_41__0bcc1d2e__Z4testPii": "__nv_static_41__0bcc1d2e__Z4testPii",
    "_Z1fPFviE": "f(void (*)(int))",
    "_Z1fRA5_i": "f(int (&) [5])",
    "_Z1fPA3_A4_i": "f(int (*) [3][4])",
    "_Z1fM1AFivE": "f(int (A::*)())",
    "_Z1fPKPFvvE": "f(void (* const*)())",
    "_Z3fooIJifEEvDpRKT_": "void foo<int, float>(int const&, float const&)",
    "_Z1fIJEEvDpT_": "void f<>()",
    "_Z1fIRiEvOT_": "void f<int&>(int&)",
    "_Z3fooILN1a1bE1EEvv": "void foo<(a::b)1>()",
    "_Z3fooILf40400000EEvv": "void foo<(float)[40400000]>()",
    "_Z1fILb1ELin1ELj3ELs3ELm7EEvv": "void f<true, -1, 3u, (short)3, 7ul>()",
    "_Z1fILb1EEvNSt9enable_ifIXT_EiE4typeE": "void f<true>(std::enable_if<true, int>::type)",
    "_Z1fB5cxx11v": "f[abi:cxx11]()",
    "_ZN1AIiEC2Ev": "A<int>::A()",
    "_ZN1AD1Ev": "A::~A()",
    "_ZN1AplERKS_": "A::operator+(A const&)",
    "_ZNKR1A1fEv": "A::f() const &",
    "_Z1fDF16_": "f(_Float16)",
    "_ZTV1A": "vtable for A",
}


@sampled.each(NAMES)
def test_names(name):
    assert demangled(name) == NAMES[name]


@pytest.mark.parametrize(
    "name", ["k", "_Z", "_Z9", "_ZN1A", "_Z1fIXplLi1ELi2EEEvv", "_Z1fS5_", "_Z99x", "_Z1f" + "P" * 5000, "_ZN"]
)
def test_what_is_not_understood_stays(name):
    assert demangled(name) == name
    assert title("_Z" + "x" * 300) != "_Z" + "x" * 300


def _random_type(rng, depth):
    """A type of the ABI without substitutions: compilers would write these, but they may be left out for builtins."""
    if depth == 0 or rng.random() < 0.3:
        return rng.choice("bcahstijlmxyfdw")
    inner = _random_type(rng, depth - 1)
    return rng.choice(
        [
            f"P{inner}",
            f"PK{inner}",
            f"PF{inner}{_random_type(rng, 0)}E",
            f"PA{rng.randrange(1, 9)}_{inner}",
            f"3BoxI{inner}Li{rng.randrange(99)}EE",
            f"N2ns4PairI{inner}{_random_type(rng, 0)}EE",
            f"N2ns1TI{inner}E5InnerE",
            f"4PackIJ{inner}{_random_type(rng, 0)}EE",
            f"M1C{inner}",
        ]
    )


def _random_name(rng):
    arguments = "".join(_random_type(rng, 3) for _ in range(rng.randrange(1, 4)))
    if rng.random() < 0.5:
        return f"_Z6kernelI{arguments}Lb1EEv{''.join(f'PT{n}_' for n in ('', '0'))}i"
    return f"_ZN2ns6kernelE{arguments}"


def _plain(text):
    while "> >" in text:
        text = text.replace("> >", ">>")
    return text


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is not there")
def test_against_the_demangler_of_binutils():
    rng = random.Random(5)
    names = [*NAMES, *(_random_name(rng) for _ in range(2000))]
    told = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    wanted = dict(zip(names, told.stdout.splitlines(), strict=True))
    for name in names:
        # where that one gives up, nothing can be compared
        if wanted[name] != name:
            assert demangled(name) == _plain(wanted[name]), name


SOFTMAX = ["_Z7softmaxIfLi256EEvPT_", "_Z7softmaxIfLi512EEvPT_", "_ZN2ns5scaleIiEEvPT_", "plain"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("softmax<float, 256>", 0),
        ("softmax<float,512>", 1),
        ("void softmax<float, 256>(float*)", 0),
        ("_Z7softmaxIfLi512EEvPT_", 1),
        ("ns::scale<int>", 2),
        ("scale<int>", 2),
        ("ns::scale", 2),
        ("scale", 2),
        ("plain", 3),
    ],
)
def test_a_kernel_by_its_name(wanted, found):
    assert choose("kernel", SOFTMAX, wanted) == SOFTMAX[found]


def test_a_name_that_fits_several():
    with pytest.raises(BenchError, match=r"'softmax' is one of 2; say which: 'void softmax<float, 256>\(float\*\)'"):
        choose("kernel", SOFTMAX, "softmax")
    with pytest.raises(BenchError, match="softmax<float, 256>"):
        choose("kernel", SOFTMAX, "sofmax")


KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}() {{
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 0;
  st.global.u32 [%rd1], 1;
  ret;
}}
"""


def test_runs_and_findings_have_the_name_that_was_written():
    module = ptx.parse(KERNEL.format(name=SOFTMAX[0]))
    run = ptx.EmulatedDevice("sm_90").launch(choose_kernel(module, "softmax"), 1, 1, [])
    assert run.origin["kernel"] == "softmax<float, 256>"
    assert run.origin["symbol"] == SOFTMAX[0]
    (found,) = run.findings
    assert found.where.file == "<ptx softmax<float, 256>>"
    assert found.where.function == "softmax<float, 256>"
    assert found.where.text == "st.global.u32 [%rd1], 1;"


def test_a_long_name_is_cut_and_stays_apart_from_others():
    longs = [f"_ZN4cute6kernelINS_{len('T' * 80) + 1}{'T' * 80}{last}EEEvv" for last in "ab"]
    assert len({title(name) for name in longs}) == 2
    assert max(len(title(name)) for name in longs) <= 96
    assert title(longs[0]).startswith("cute::kernel<cute::TTT")


def test_long_lists_of_registers_are_cut():
    registers = ", ".join(f"%r{i}" for i in range(1, 33))
    body = f"  tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{registers}}}, [%r40];"
    text = KERNEL.format(name="k").replace(".reg .b64 %rd<2>;", ".reg .b64 %rd<2>; .reg .b32 %r<64>; mov.u32 %r40, 0;")
    text = text.replace(".version 8.0", ".version 8.6").replace("sm_90", "sm_100a").replace("  ret;", f"{body}\n  ret;")
    run = ptx.EmulatedDevice("sm_100a").launch(ptx.parse(text).kernels["k"], 1, 32, [])
    (found,) = [one for one in run.findings if "tcgen05.ld" in one.message]
    assert "{%r1, %r2, %r3, %r4, %r5, ... %r32} (32 registers), [%r40];" in found.message
    assert "%r17" not in found.where.text


def test_titles_leave_out_what_numba_adds_for_itself():
    tag = "cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3CwAkMXLaJtQYkOIgxJU0gC"
    assert title(f"_ZN8__main__5twiceB2v1B{len(tag)}{tag}E5ArrayIfLi1E1C7mutable7alignedE") == "__main__::twice[abi:v1]"
