"""The ISA table: all forms by opcode, and effects by meaning."""

from kernbench.ptx.isa.forms.effects import Effects, Flow
from kernbench.ptx.isa.forms.form import Form
from kernbench.ptx.isa.rows import GROUPS


def _by_opcode() -> dict[str, tuple[Form, ...]]:
    found: dict[str, list[Form]] = {}
    for group in GROUPS:
        for form in group.forms:
            found.setdefault(form.opcode, []).append(form)
    return {opcode: tuple(forms) for opcode, forms in sorted(found.items())}


def _by_meaning() -> dict[str, Effects]:
    found: dict[str, Effects] = {}
    for form in (form for forms in FORMS.values() for form in forms):
        if found.setdefault(form.meaning, form.effects) != form.effects:
            raise ValueError(f"two groups of the table differ in what {form.meaning!r} does")
    return dict(sorted(found.items()))


FORMS = _by_opcode()
EFFECTS = _by_meaning()


def forms_of(opcode: str) -> tuple[Form, ...]:
    """The forms of an opcode; none if it is unknown."""
    return FORMS.get(opcode, ())


def flow_of(opcode: str) -> Flow:
    """The control flow of an opcode, which all its forms share; "" for instructions without."""
    forms = forms_of(opcode)
    return forms[0].effects.flow if forms else ""
