"""The one ISA table: which instructions there are, what they take, and under which key their meaning is kept.

`resolve(instruction)` sees an instruction through its row. Slot names are the same in all rows: `type` (and `dtype`,
`atype`, `btype`, `ctype` where there are several), `rnd`, `ftz`, `sat`, `cmp`, `bool`, `space`, `sem`, `scope`, `vec`,
`op`, `mode`, `part`, `shape`, and `hint` for an L2 cache policy.
"""

from kernbench.ptx.isa.forms.form import Form, OperandRule, Resolved, Slot
from kernbench.ptx.isa.resolve import form_text, resolve
from kernbench.ptx.isa.special import SPECIAL_REGISTERS, SpecialRegister, special_register
from kernbench.ptx.isa.table import FORMS, forms_of

__all__ = [
    "FORMS",
    "SPECIAL_REGISTERS",
    "Form",
    "OperandRule",
    "Resolved",
    "Slot",
    "SpecialRegister",
    "form_text",
    "forms_of",
    "resolve",
    "special_register",
]
