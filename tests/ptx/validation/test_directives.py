"""Heads, names, sizes and values that an assembler refuses: each is refused at its line, and its neighbour is not."""

import pytest
from tests import sampled
from tests.ptx.corpus import kernel_text
from tests.ptx.toolchain import assembles, need_ptxas

from kernbench import ptx
from kernbench.ptx.validation.validation import problems

# what stands wrong -> how the message begins
REFUSED_ITEMS = {
    ".global .b32 g; .global .b32 g;": "'g' is declared twice",
    ".global .b32 g; .const .b32 g;": "'g' is declared twice",
    ".extern .global .b32 g; .global .b32 g;": "'g' is .extern elsewhere; define it .visible",
    ".extern .global .b32 g; .visible .global .f32 g;": "'g' is .global .b32 in another declaration",
    ".global .b32 k;": "'k' is declared as a function and as a variable",
    ".func f() {ret;} .func f() {ret;}": "'f' is defined twice",
    ".func f() {ret;} .func f();": "'f' is declared after its body",
    ".func f(.reg .b32 a); .func f() {ret;}": "'f' has other parameters here than where it was declared",
    ".entry k() {ret;}": "'k' is defined twice",
    ".func k() {ret;}": "'k' is declared as .func and as .entry",
    ".extern .func f() {ret;}": "'f' is .extern and has a body; remove one",
    ".func f(.param .b32 a, .param .b32 a) {ret;}": "'f' has two parameters 'a'",
    ".entry e(.reg .b32 a) {ret;}": "'a' is .reg; a kernel's parameters are .param",
    ".entry e(.param .b8 a[]) {ret;}": "kernel parameter 'a' needs a size",
    ".entry e(.param .b8 a[32765]) {ret;}": "the parameters of 'e' have 32765 bytes; a kernel has 32764 at most",
    ".func f(.param .b8 a[], .param .b32 b) {ret;}": "'a' has no size; only the last parameter may be unsized",
    ".alias a, b;": ".alias names 'a', which is no function of this module",
    ".global .b8 g[];": "'g' needs a size; only .extern arrays go without",
    ".global .b8 g[0];": "'g' needs a size; only .extern arrays go without",
    ".local .b8 g[4];": "'g': .local variables do not stand outside functions; declare it in a function",
    ".global .pred g;": "'g': predicates live in registers only",
    ".global .v4 .f64 g;": ".v4 .f64 has 256 bits; a vector has at most 4 elements and 128 bits",
    ".const .b8 a[40000]; .const .b8 b[40000];": "constants up to 'b' have 80000 bytes; there are 65536",
    ".common .shared .b32 g;": "'g' is .common, which only .global variables may be",
    ".shared .b32 g = 3;": "'g' lies in .shared, which has no initial values; store them in the kernel",
    ".extern .global .b32 g = 3;": "'g' is .extern; its initial value stands where it is defined",
    ".global .b8 g[2] = {1, 2, 3};": "the initial value of 'g' has 3 elements where 2 fit",
    ".global .b8 g[2] = 5;": "the initial value of 'g' takes a list in braces there",
    ".global .b8 g = {5};": "the initial value of 'g' takes one value, not a list there",
    ".global .f32 g = 1;": "1 is an integer, and 'g' is .f32",
    ".global .u32 g = 0f3F800000;": "0f3F800000 is a float, and 'g' is .u32",
    ".global .u32 h; .global .b64 g = h;": "an address cannot be the initial value of 'g', which is .b64",
    ".global .u64 g = h; .global .u32 h;": "the initial value of 'g' names 'h', which is not declared before it",
    ".shared .u32 h; .global .u64 g = h;": "the initial value of 'g' names 'h'; a .shared address is not known then",
}
GOOD_ITEMS = (
    ".extern .global .b32 g; .visible .global .b32 g;",
    ".global .b32 g; .extern .global .b32 g;",
    ".extern .shared .b8 s[4]; .extern .shared .b8 s[4];",
    ".func f(.param .b32 a); .func f(.param .b32 b) {ret;}",
    ".visible .func a(); .visible .func f() {ret;} .alias a, f;",
    ".global .b8 g[] = {1, 2, 3};",
    ".global .v2 .b32 g[2] = {{1, 2}, {3, 4}};",
    ".global .u32 h; .global .u64 g[2] = {h, generic(h)+8}; .global .u8 b[2] = {0xFF(h), 0xFF00(h)};",
    ".const .b8 a[65536];",
    ".entry e(.param .b8 a[32764]) {ret;}",
)
REFUSED_HEADS = {
    ".maxntid 0": ".maxntid 0: give numbers from 1 to 4294967295",
    ".maxntid 1, 2, 3, 4": ".maxntid takes 1 to 3 numbers, not 4",
    ".maxntid": ".maxntid takes 1 to 3 numbers, not 0",
    ".reqntid 32, 1, 0": ".reqntid 0: give numbers from 1 to 4294967295",
    ".maxntid 4294967296": ".maxntid 4294967296: give numbers from 1 to 4294967295",
    ".maxntid 64 .reqntid 128": ".maxntid and .reqntid contradict each other; keep one",
    ".maxntid 128 .minnctapersm 0": ".minnctapersm 0: give numbers from 1 to 4294967295",
    ".maxnreg 0": ".maxnreg 0: give numbers from 1 to 4294967295",
    ".maxnctapersm 1": ".maxnctapersm ended with .version 2.0; use .minnctapersm",
    ".maxclusterrank 8 .reqnctapercluster 2": ".maxclusterrank and .reqnctapercluster contradict each other; keep one",
    ".noreturn": ".noreturn belongs to a function (.func)",
    ".blocksareclusters": ".blocksareclusters needs .reqntid and .reqnctapercluster beside it",
}
GOOD_HEADS = (
    ".maxntid 128, 1, 1 .minnctapersm 2 .maxnreg 64",
    ".reqntid 64",
    ".explicitcluster .reqnctapercluster 2, 1, 1",
)
REFUSED_BODIES = {
    "bar.sync 99;": "bar.sync takes 0 to 15 as id, not 99",
    "bar.sync 0, 33;": "bar.sync takes a multiple of the warp's 32 threads as count, not 33",
    "bar.arrive 0, 0;": "bar.arrive takes a positive multiple of the warp's 32 threads as count, not 0",
    "barrier.sync 17;": "barrier.sync takes 0 to 15 as id, not 17",
    "cp.async.ca.shared.global [%r1], [%rd1], 5;": "cp.async.ca.shared.global takes 4 or 8 or 16 as size, not 5",
    "cp.async.cg.shared.global [%r1], [%rd1], 8;": "cp.async.cg.shared.global takes 16 as size, not 8",
    "bfe.u32 %r1, %r2, 256, 1;": "bfe.u32 takes 0 to 255 as b, not 256",
    "mbarrier.init.shared.b64 [%r1], 0;": "mbarrier.init.shared.b64 takes 1 to 1048575 as count, not 0",
    "mbarrier.init.shared.b64 [%r1], 1048576;": "mbarrier.init.shared.b64 takes 1 to 1048575 as count, not 1048576",
    "setmaxnreg.inc.sync.aligned.u32 100;": "setmaxnreg.inc.sync.aligned.u32 takes a multiple of 8 from 24 to 256",
    "ld.shared.u32 %r1, [64];": "[64]: only .local addresses may be plain numbers",
    "ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%h1];": "'%h1' has 16 bits, and an address has at least 32",
    "prefetch.L1 [%r1];": "'%r1' has 32 bits, and a generic address has 64",
    "tcgen05.shift.cta_group::1.down [%rd1];": "'%rd1' has 64 bits, and an address of tensor memory has 32",
    "mbarrier.test_wait.shared.b64 _, [%r1], %rd1;": "mbarrier cannot throw a value away with '_'",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2];": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 wants",
    "vote.sync.all.pred %p1, %p2, %f1;": "'%f1' is .f32, and vote.sync.all.pred wants .u32 there",
    ".reg .f16 %x; add.bf16 %x, %h1, %h2;": "'%x' is .f16, and add.bf16 wants .bf16 there",
    ".reg .f16x2 %x; add.f32 %x, %f1, %f2;": "'%x' is .f16x2, and add.f32 wants .f32 there",
    ".shared .b64 s; ld.global.u64 %rd1, [s];": "'s' lies in .shared, and ld.global.u64 accesses .global",
    ".local .b64 l; mbarrier.init.b64 [l], 1;": "'l' lies in .local, and mbarrier.init.b64 accesses .shared",
    ".local .b64 l; cp.async.ca.shared.global [l], [%rd1], 4;": "'l' lies in .local, and cp.async.ca.shared",
    ".const .b64 c; ld.u64 %rd1, [c];": "'c' lies in .const; access it with .const, or make its address generic",
    ".shared .b64 s; cvta.global.u64 %rd1, s;": "'s' lies in .shared, and cvta.global.u64 accesses .global",
    "mapa.u64 %rd1, %clock64, %r1;": "%clock64 is a special register, which only mov can read",
    ".shared .b8 s[4]; bra s;": "'s' is not a label that can be reached from here",
    ".local .b8 l[];": "'l' needs a size; only .extern arrays go without",
    ".local .b32 l = 4;": "'l' lies in .local, which has no initial values; store them in the kernel",
    ".extern .shared .b8 s[];": "'s' is .extern, which only variables outside functions may be",
    ".reg .v4 .f64 %v;": ".v4 .f64 has 256 bits; a vector has at most 4 elements and 128 bits",
}
GOOD_BODIES = (
    "bar.sync 15, 64; bar.arrive 1, 32; barrier.sync 0;",
    "cp.async.ca.shared.global [%r1], [%rd1], 4;",
    "mbarrier.init.shared.b64 [%r1], 1048575;",
    "mbarrier.init.shared.b64 [%r1], 1; ld.local.u32 %r1, [64]; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];",
    ".shared .b64 s; mbarrier.init.b64 [s], 1; cvta.shared.u64 %rd1, s; .const .b64 c; ld.const.u64 %rd1, [c];",
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 1;",
)


def with_head(head: str) -> str:
    return kernel_text("").replace("(.param .u64 p) {", f"(.param .u64 p) {head} {{")


def first(text: str) -> tuple[int, str]:
    found = list(problems(ptx.parse(text)))
    return (found[0].line, found[0].message) if found else (0, "")


ALL_REFUSED = [
    *((kernel_text("", before=item), message, 4) for item, message in REFUSED_ITEMS.items()),
    *((with_head(head), message, 5) for head, message in REFUSED_HEADS.items()),
    *((kernel_text(body), message, 7) for body, message in REFUSED_BODIES.items()),
]
# what the PTX manual forbids and some builds of ptxas take: 13.0.88 for x86-64 takes 0, the same version for ARM does
# not; the largest count is enforced from 13.1 on
DISPUTED = {kernel_text(f"mbarrier.init.shared.b64 [%r1], {count};") for count in (0, 1048576)}
ALL_GOOD = [
    *(kernel_text("", before=item) for item in GOOD_ITEMS),
    *(with_head(head) for head in GOOD_HEADS),
    *(kernel_text(body) for body in GOOD_BODIES),
]


@sampled.each_row(ALL_REFUSED)
def test_what_an_assembler_refuses_is_refused_at_its_line(text, message, line):
    found = first(text)
    assert found[1].startswith(message)
    assert found[0] in (line, line + 1)


def test_what_is_disputed_is_refused_here():
    assert {text for text, _, _ in ALL_REFUSED} > DISPUTED


@pytest.mark.parametrize("text", ALL_GOOD, ids=range(len(ALL_GOOD)))
def test_what_an_assembler_takes_is_taken(text):
    assert first(text) == (0, "")


@pytest.mark.programs
def test_ptxas_says_the_same():
    """Of a third of the texts, with --full of all; here each has a test of its own."""
    need_ptxas("sm_100a", (9, 0))
    wrong = sampled.some([text for text, _, _ in ALL_REFUSED if text not in DISPUTED], len(ALL_REFUSED) // 3)
    assert [text for text in wrong if assembles(text, "sm_100a")] == []
    good = sampled.some(ALL_GOOD, len(ALL_GOOD) // 3)
    assert [text for text in good if not assembles(text, "sm_100a")] == []


@pytest.mark.parametrize(
    ("version", "target", "message"),
    [
        ("99.9", "sm_90", "there is no .version 99.9; 9.0 is the newest one known here: compile for an older one; "),
        ("7.9", "sm_80", "there is no .version 7.9; versions are 1.0 to 1.5, "),
        ("9.0", "sm_9999", "unknown target 'sm_9999'; known: sm_10, "),
        ("9.0", "sm_90a, fast", "unknown target 'fast'; known: sm_10, "),
        ("7.0", "sm_90", "sm_90 needs .version 7.8, and the module says 7.0"),
        ("9.0", "sm_90, map_f64_to_f32", "map_f64_to_f32 goes with targets before sm_13 only; remove it"),
        ("9.0", "sm_90, texmode_unified, texmode_independent", "texmode_unified and texmode_independent contradict "),
    ],
)
def test_versions_and_targets(version, target, message):
    line, found = first(kernel_text("", version=version, target=target))
    assert found.startswith(message)
    assert line == (1 if found.startswith("there") else 2)


def test_a_version_newer_than_known_is_taken_as_the_newest_and_more():
    assert first(kernel_text("", version="9.3", target="sm_100a")) == (0, "")


def test_a_second_declaration_names_the_first():
    _, message = first(kernel_text("", before=".global .b32 g;\n.global .b32 g;"))
    assert message == "'g' is declared twice; it stands at line 4 already"


def test_the_head_stands_at_the_beginning():
    with pytest.raises(ptx.PtxSyntaxError, match="stands at the beginning"):
        ptx.parse(kernel_text("") + "\n.target sm_80\n")


def test_an_open_first_dimension_is_as_long_as_its_initial_value():
    module = ptx.parse(kernel_text("", before=".global .b16 g[][2] = {{1, 2}, {3, 4}, {5, 6}};"))
    assert module.variables["g"].dims == (3, 2)
    assert ptx.parse(module.emit()) == module
