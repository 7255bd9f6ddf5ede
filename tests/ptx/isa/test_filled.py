"""Operand rules with their slots filled in are made once for each form and its modifiers."""

from dataclasses import replace

from kernbench.ptx import isa
from kernbench.ptx.isa.resolve import filled

LOAD = next(form for form in isa.FORMS["ld"] if any(slot.name == "vec" for slot in form.slots))


def test_rules_are_made_once_for_each_choice():
    one, two = ({"type": kind} for kind in ("b32", "u64"))
    assert filled(LOAD, dict(one)) is filled(LOAD, one)
    assert [rules[0].type for rules in (filled(LOAD, one), filled(LOAD, two))] == ["b32", "u64"]
    assert [filled(LOAD, one, braced)[0].shape for braced in (False, True)] == ["reg", "vec1"]
    assert filled(LOAD, {"vec": "v2", **one})[0].shape == "vec2"


def test_a_form_that_is_gone_leaves_no_rules_to_another():
    """What is kept is found by identity, and a new object may get the identity of one that is gone."""
    for count in range(20):
        made = replace(LOAD, operands=LOAD.operands[: 1 + count % 2])
        assert len(filled(made, {"type": "b32"})) == 1 + count % 2
        del made
