"""The ISA table: which instructions exist, their modifiers and operands, and the name of what each does.

`resolve(instruction)` finds an instruction's row. Slot names are the same in all rows: `type` (and `dtype`, `atype`,
`btype`, `ctype` if there are several), `rnd`, `ftz`, `sat`, `cmp`, `bool`, `space`, `sem`, `scope`, `vec`, `op`,
`mode`, `part`, `shape`, and `hint` for an L2 cache policy.
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
