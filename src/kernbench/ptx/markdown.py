"""The table as a document: every supported form, by group."""

from collections.abc import Collection

from kernbench.ptx.isa.forms.form import Form
from kernbench.ptx.isa.rows import GROUPS
from kernbench.ptx.isa.since import targets
from kernbench.ptx.isa.special import SPECIAL_REGISTERS

_HEAD = """# Supported PTX instructions

Generated from the ISA table by `python -m kernbench.ptx.markdown`; the language of the operands is described in
`kernbench.ptx.isa.forms.syntax`. Modifiers in braces may be left out; ptxas and kernbench take modifiers in any order,
except that types, layouts and the two ends of a copy keep theirs. "100f" names a family: sm_100 and sm_103; "120f"
sm_120 and sm_121; "101f" and "110f" one each. Which target has a form is what ptxas 13.0 takes. The last column says
whether the emulator runs the form; all of them are parsed, printed and validated.
"""


def markdown(emulated: Collection[str] = ()) -> str:
    """The document's text; `emulated` are the meanings that the emulator can run."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts.append("| instruction | modifiers | operands | since | targets | emulator |\n|---|---|---|---|---|---|")
        parts.extend(_line(form, form.meaning in emulated) for form in group.forms)
        parts.append("")
    parts.append("## Special registers\n")
    parts.append("| name | type | since | targets |\n|---|---|---|---|")
    parts.extend(
        f"| `{row.name}` | {row.type} | {row.version[0]}.{row.version[1]} | sm_{row.sm}+ |"
        for row in SPECIAL_REGISTERS.values()
        if not row.components
    )
    return "\n".join(parts) + "\n"


def _line(form: Form, runs: bool) -> str:
    code = [f"`{cell}`" if cell else "" for cell in (form.opcode, _modifiers(form), form.operands_text)]
    version = f"{form.version[0]}.{form.version[1]}"
    cells = (*code, version, targets(form), "runs" if runs else "not yet")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shortened(choices: tuple[str, ...]) -> tuple[str, ...]:
    """The first, second and last of very many (the shapes of wgmma)."""
    return choices if len(choices) <= 16 else (*choices[:2], "..", choices[-1])


def _modifiers(form: Form) -> str:
    texts = []
    for slot in form.slots:
        choices = "|".join(f".{choice}" for choice in _shortened(slot.choices))
        texts.append(choices if slot.required else f"{{{choices}}}")
    return " ".join(texts)


if __name__ == "__main__":
    from pathlib import Path

    from kernbench.ptx.emulator.instructions import MEANINGS

    Path("docs/ptx-instructions.md").write_text(markdown(MEANINGS))
