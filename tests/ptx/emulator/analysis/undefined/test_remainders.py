"""Scans of a warp of which each lane's own value is subtracted again."""

import pytest
from tests.ptx.emulator.analysis.undefined.test_matrices import run

# only the words of lanes below 20 are written
HEAD = """  setp.lt.u32 %p1, %r0, 20;
  @%p1 st.shared.u32 [%r2], 5;
  bar.warp.sync -1;
  ld.shared.u32 %r10, [%r2];
"""
STEP = "  {{ .reg .s32 r; .reg .pred p; shfl.sync.up.b32 r|p, %r{0}, {1}, 0, -1; {2} mov.s32 %r{3}, r; }}\n"
ADD = "@p add.s32 r, r, %r{0};"


def scan(add=ADD, first=10):
    """An inclusive scan of %r10 in %r15."""
    numbers = [first, 11, 12, 13, 14, 15]
    steps = zip(numbers, (1, 2, 4, 8, 16), numbers[1:], strict=False)
    return "".join(STEP.format(source, by, add.format(source), target) for source, by, target in steps)


def store(below):
    """The store of %r16 by the lanes below a number."""
    return f"  setp.lt.u32 %p2, %r0, {below};\n  @%p2 st.global.u32 [%rd3], %r16;\n"


SUBTRACT = "  sub.s32 %r16, %r15, %r10;\n"


def counts(body):
    return [(f.kind, f.count) for f in run(body)]


def test_what_is_left_without_the_own_value_is_defined_where_the_others_are():
    # lane 20 has the sum of the lanes below it
    assert counts(HEAD + scan() + SUBTRACT + store(21)) == []
    assert counts(HEAD + scan() + SUBTRACT + store(23)) == [("uninitialised-read", 2)]
    assert counts(HEAD + scan() + SUBTRACT.replace("%r10", "%r11") + store(21)) == [("uninitialised-read", 1)]


HALVES = (
    "  {{ .reg .s64 r; .reg .b32 lo, hi; .reg .pred p; mov.b64 {{lo, hi}}, %rd{0}; "
    "shfl.sync.up.b32 lo|p, lo, {1}, 0, -1; shfl.sync.up.b32 hi|p, hi, {1}, 0, -1; mov.b64 r, {{lo, hi}}; "
    "@p add.s64 r, r, %rd{0}; mov.s64 %rd5, r; }}\n"
)
# sums of 64 bits in %rd5; in %rd4 the own value, a word that nobody wrote or 5
OWN = "  mov.b64 %rd4, {%r10, %r10};\n"
WIDE = "".join(HALVES.format(*step) for step in zip((4, 5, 5, 5, 5), (1, 2, 4, 8, 16), strict=True))
WIDE_SUBTRACT = "  sub.s64 %rd6, %rd5, %rd4;\n  cvt.u32.u64 %r16, %rd6;\n"


def test_sums_of_64_bits_are_shuffled_in_halves():
    assert counts(HEAD + OWN + WIDE + WIDE_SUBTRACT + store(21)) == []
    assert counts(HEAD + OWN + WIDE + WIDE_SUBTRACT + store(23)) == [("uninitialised-read", 2)]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        # halves of other lanes, or exchanged
        ("shfl.sync.up.b32 hi|p, hi, 2,", "shfl.sync.up.b32 hi|p, hi, 1,"),
        ("shfl.sync.up.b32 hi|p, hi, 2,", "shfl.sync.down.b32 hi|p, hi, 2,"),
        ("mov.b64 r, {lo, hi};", "mov.b64 r, {hi, lo};"),
        ("mov.b64 r, {lo, hi};", "mov.b64 r, {lo, lo};"),
        ("mov.b64 r, {lo, hi};", "add.u32 hi, hi, 0; mov.b64 r, {lo, hi};"),
        ("mov.b64 r, {lo, hi};", "mov.b64 r, {lo, hi}; setp.eq.u32 p, 0, 0;"),
    ],
)
def test_other_halves_make_no_sum(text, other):
    begin, step, rest = HEAD + OWN, HALVES.format(4, 2), HALVES.format(5, 4)
    assert counts(begin + step + rest + WIDE_SUBTRACT + store(21)) == []
    assert text in step
    # what lanes 18 and 20 bring to lane 20 is defined or left out again, but none of these is known to be a sum
    assert counts(begin + step.replace(text, other) + rest + WIDE_SUBTRACT + store(21)) == [("uninitialised-read", 1)]


BRANCH = "  setp.ne.u32 %p3, %r0, 31;\n  @%p3 bra JOIN;\n  {};\nJOIN:\n"


def test_branches_between_a_scan_and_what_is_subtracted():
    assert counts(HEAD + scan() + BRANCH.format("st.shared.u32 [%r1+512], %r15") + SUBTRACT + store(21)) == []
    for other in ("mov.u32 %r10, 1", "mov.u32 %r15, 1"):
        assert counts(HEAD + scan() + BRANCH.format(other) + SUBTRACT + store(21)) == [("uninitialised-read", 1)]


def test_a_difference_that_an_undefined_value_chooses_is_undefined():
    choice = "  mov.u32 %r16, 1;\n  setp.gt.u32 %p3, %r10, 3;\n  @!%p3 bra JOIN;\n" + SUBTRACT + "JOIN:\n"
    for body in (choice, choice.replace("@!%p3", "@%p3"), choice.replace("%r10, 3;", "%r10, 9;")):
        assert counts(HEAD + scan() + body + store(20)) == []
        assert counts(HEAD + scan() + body + store(21)) == [("uninitialised-read", 1)]


def test_the_sum_of_an_earlier_round_is_not_that_of_the_last():
    head = HEAD + "  mov.u32 %r20, 0;\n  mov.u32 %r17, 0;\nAGAIN:\n"
    rounds = "  add.u32 %r20, %r20, 1;\n  setp.lt.u32 %p3, %r20, 2;\n  @%p3 bra AGAIN;\n"
    late = "  sub.s32 %r16, %r17, %r10;\n" + scan() + "  mov.s32 %r17, %r15;\n"
    assert counts(head + late + rounds + store(21)) == [("uninitialised-read", 1)]


def test_a_value_that_was_never_set_is_left_out_again():
    unset = "  setp.lt.u32 %p1, %r0, 20;\n  @!%p1 bra SCAN;\n  mov.u32 %r10, 5;\nSCAN:\n"
    assert counts(unset + scan() + SUBTRACT + store(21)) == []
    assert counts(unset + scan() + SUBTRACT.replace("%r10", "%r11") + store(21)) == [("uninitialised-read", 1)]


def test_in_a_loop_each_scan_counts_for_itself():
    loop = "  mov.u32 %r20, 0;\nAGAIN:\n" + scan() + SUBTRACT
    again = "  add.u32 %r20, %r20, 1;\n  setp.lt.u32 %p3, %r20, 2;\n  @%p3 bra AGAIN;\n"
    # the first time all are defined
    late = HEAD.replace("ld.shared.u32 %r10, [%r2]", "mov.u32 %r10, 3")
    reads = "  ld.shared.u32 %r10, [%r2];\n" + again
    assert counts(late + loop + reads + store(21)) == []
    assert counts(late + loop + reads + store(22)) == [("uninitialised-read", 1)]


@pytest.mark.parametrize(
    "body",
    [
        # what is subtracted is another value by now, or was another one
        scan() + "  add.s32 %r10, %r10, 1;\n" + SUBTRACT,
        scan() + "  mov.b32 %r17, %r10;\n" + SUBTRACT.replace("%r10", "%r17"),
        # the sum is no scan: added in every lane, twice, or with an end
        scan("add.s32 r, r, %r{0};") + SUBTRACT,
        scan("@p add.s32 r, r, r;") + SUBTRACT,
        scan("@p add.sat.s32 r, r, %r{0};") + SUBTRACT,
        scan("@!p add.s32 r, r, %r{0};") + SUBTRACT,
        scan("@p max.s32 r, r, %r{0};") + SUBTRACT,
        scan() + "  add.s32 %r15, %r15, 1;\n" + SUBTRACT,
        scan() + SUBTRACT.replace("sub", "sub.sat"),
    ],
)
def test_other_differences_stay_undefined(body):
    assert counts(HEAD + body + store(21)) == [("uninitialised-read", 1)]
