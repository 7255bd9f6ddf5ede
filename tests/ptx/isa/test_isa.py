"""The ISA table: resolving, agreement with ptxas, and the document made from it."""

from pathlib import Path

import pytest
from tests import sampled
from tests.ptx.isa_samples import Sample, module, oldest_target, refusals, samples, target_of
from tests.ptx.toolchain import need_ptxas, needs_ptxas, ptxas_knows

from kernbench import ptx
from kernbench.ptx import isa
from kernbench.ptx.emulator.instructions import MEANINGS
from kernbench.ptx.isa.rows import GROUPS
from kernbench.ptx.isa.since import has_target, since
from kernbench.ptx.markdown import markdown
from kernbench.ptx.text.module import Instruction

# a call needs a callee; calls are tested with whole modules
FORMS = [form for forms in isa.FORMS.values() for form in forms if form.opcode != "call"]


def instruction(text: str) -> Instruction:
    body = ptx.parse(f".version 9.0\n.target sm_100a\n.entry k() {{\n{text}\n}}").kernels["k"].function.body
    return body.statements[0]


def by_target(found: list[Sample], oldest: bool) -> dict[tuple[str, tuple[int, int]], list[Sample]]:
    groups: dict[tuple[str, tuple[int, int]], list[Sample]] = {}
    for sample in found:
        key = oldest_target(sample) if oldest else (target_of(sample.form), max((9, 0), sample.form.version))
        groups.setdefault(key, []).append(sample)
    return groups


def refused(found: list[Sample], oldest: bool) -> dict[tuple[str, tuple[int, int], str], str]:
    messages = {}
    groups = by_target(found, oldest)
    # who knows a target at a version of the language knows it at older ones
    newest = {target: max(version for other, version in groups if other == target) for target, _ in groups}
    for (target, version), group in groups.items():
        if not (ptxas_knows(target, newest[target]) or ptxas_knows(target, version)):
            continue
        by_index = refusals([sample.text for sample in group], target, version)
        messages |= {(target, version, group[index].text): message for index, message in by_index.items()}
    return messages


@pytest.mark.programs
@needs_ptxas
def test_ptxas_takes_every_choice_of_every_row_where_it_first_exists():
    """Of every third pair of a target and a version, with --full of all: each is a run of ptxas."""
    found = [sample for form in FORMS for sample in samples(form)]
    pairs = by_target(found, True)
    chosen = sampled.some(list(pairs), len(pairs) // 3)
    assert refused([sample for pair in chosen for sample in pairs[pair]], True) == {}


@pytest.mark.programs
@needs_ptxas
def test_ptxas_takes_mixtures():
    found = [sample for form in FORMS[::5] for sample in samples(form, extra=4, seed=form_seed(form))]
    assert refused(found, False) == {}


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_100f", "sm_103a", "sm_110a", "sm_120f"])
def test_ptxas_and_the_table_have_the_same_forms_on_a_target(target):
    """Of what only some targets have, each row's first sample."""
    need_ptxas(target, (9, 0))
    found = [next(samples(form)) for form in FORMS if form.family and form.version <= (9, 0)]
    refused_here = refusals([sample.text for sample in found], target)
    # ptxas takes some types of mma with kind::f8f6f4 everywhere, the ISA has them on sm_120 only
    wrong = [
        sample.text
        for number, sample in enumerate(found)
        if has_target(sample.form, sample.form.sm, target) == (number in refused_here)
        and not sample.text.startswith("mma")
    ]
    assert wrong == []


def form_seed(form: isa.Form) -> int:
    return len(form.modifiers_text) * 31 + len(form.operands_text)


def test_every_sample_finds_a_row_that_is_no_younger_than_its_own():
    found = [sample for form in FORMS for sample in samples(form)]
    body = ptx.parse(module([sample.text for sample in found], "sm_100a")).kernels["k"].function.body
    parsed = [statement for statement in body.statements if isinstance(statement, Instruction)]
    for sample, statement in zip(found, parsed[:-1], strict=True):
        resolved = isa.resolve(statement)
        assert since(resolved) <= since(isa.Resolved(sample.form, dict(sample.mods))), (sample, resolved.form)
        assert resolved.meaning == sample.form.meaning, sample


def test_samples_validate():
    from kernbench.ptx.validation.validation import problems

    for (target, version), group in by_target([s for form in FORMS for s in samples(form)], False).items():
        found = list(problems(ptx.parse(module([sample.text for sample in group], target, version))))
        assert found == []


def test_resolved_says_slots_rules_and_types():
    found = isa.resolve(instruction("mad.wide.s32 %rd1, %r1, 3, %rd2;"))
    assert (found.meaning, dict(found.mods)) == ("mad.int", {"part": "wide", "type": "s32"})
    assert found.types == ("s64", "s32", "s32", "s64")
    assert [rule.name for rule in found.rules] == ["d", "a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "meaning", "mods"),
    [
        ("add.f32.rn %f1, %f2, %f3;", "add.float", {"rnd": "rn", "type": "f32"}),
        ("ld.u32.global %r1, [%rd1];", "ld", {"type": "u32", "space": "global"}),
        ("setp.s32.lt %p1, %r1, %r2;", "setp", {"cmp": "lt", "type": "s32"}),
        ("cvt.f32.rn.s32 %f1, %r1;", "cvt", {"rnd": "rn", "dtype": "f32", "atype": "s32"}),
        ("cvt.u16.u32 %h1, %r1;", "cvt", {"dtype": "u16", "atype": "u32"}),
    ],
)
def test_modifiers_in_any_order_but_types_in_theirs(text, meaning, mods):
    found = isa.resolve(instruction(text))
    assert (found.meaning, dict(found.mods)) == (meaning, mods)


def test_vectors_take_their_length_from_slots():
    assert isa.resolve(instruction("ld.global.v4.f32 {a, b, c, d}, [e];")).rules[0].shape == "vec4"
    assert isa.resolve(instruction("ld.global.f32 {a}, [e];")).rules[0].shape == "vec1"
    assert isa.resolve(instruction("ld.global.f32 a, [e];")).rules[0].shape == "reg"
    registers = ", ".join(f"r{n}" for n in range(64))
    text = f"tcgen05.ld.sync.aligned.16x256b.x16.b32 {{{registers}}}, [t];"
    assert isa.resolve(instruction(text)).rules[0].shape == "vec64"
    text = f"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{{registers}}}, a, b, p, 1, 1, 0, 0;"
    assert isa.resolve(instruction(text)).rules[0].shape == "vec64"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add.sat.u32 a, b, c;", "add.sat.u32: .sat does not go with the other modifiers; a form near it is add"),
        ("add.f32.rnn a, b, c;", "add.f32.rnn: unknown modifier of add 'rnn'; known: bf16, "),
        ("cvt.rn.f32 a, b;", "cvt.rn.f32: .u8|.u16|.u32|.u64|.s8|.s16|.s32|.s64 is missing; a form near it is cvt"),
        ("add.u32 a, b;", "add.u32 takes the operands (=d, a, b), not (name, name)"),
        ("frobnicate.u32 a;", "unknown instruction 'frobnicate'; known: abs, "),
    ],
)
def test_errors_name_the_modifier_and_what_is_allowed(text, message):
    with pytest.raises(ptx.PtxError) as caught:
        isa.resolve(instruction(text))
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (4, 1)


def test_special_registers():
    assert isa.special_register("%tid.x").type == "u32"
    assert isa.special_register("%clock64").type == "u64"
    assert isa.special_register("%tid").components == "xyz"
    assert isa.special_register("%tid.q") is None


def test_ptxas_knows_every_special_register():
    need_ptxas("sm_100a", (9, 0))
    wide = {"u64": "mov.u64 %rd1", "u32": "mov.u32 %r1", "b32": "mov.b32 %r1", "pred": "mov.pred %p1"}
    rows = [row for row in isa.SPECIAL_REGISTERS.values() if not row.components]
    assert refusals([f"{wide[row.type]}, {row.name};" for row in rows], "sm_100a") == {}


def test_the_document_is_current():
    path = Path(__file__).parents[3] / "docs" / "ptx-instructions.md"
    assert path.read_text() == markdown(MEANINGS), "run: python -m kernbench.ptx.markdown"


def test_every_row_has_a_meaning_and_a_cost():
    assert {form.cost for group in GROUPS for form in group.forms} == {
        *("int", "float", "double", "half", "special", "convert", "move", "memory", "atomic", "warp", "sync"),
        *("control", "matrix", "copy"),
    }
