"""The table: every form of every group, by opcode."""

from kernbench.ptx.isa.forms.form import Form
from kernbench.ptx.isa.rows import GROUPS


def _by_opcode() -> dict[str, tuple[Form, ...]]:
    found: dict[str, list[Form]] = {}
    for group in GROUPS:
        for form in group.forms:
            found.setdefault(form.opcode, []).append(form)
    return {opcode: tuple(forms) for opcode, forms in sorted(found.items())}


FORMS = _by_opcode()


def forms_of(opcode: str) -> tuple[Form, ...]:
    """The forms of an opcode; none for an unknown one."""
    return FORMS.get(opcode, ())
