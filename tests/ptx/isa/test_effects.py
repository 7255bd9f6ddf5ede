"""What instructions do is said once, in the ISA table: every meaning has its row, and nobody keeps a list beside it."""

import ast
import re
from pathlib import Path

import pytest

import kernbench.ptx
from kernbench.ptx import mutation
from kernbench.ptx.emulator.instructions import MEANINGS
from kernbench.ptx.isa.forms.effects import LANE_WISE, Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.table import EFFECTS, FORMS, flow_of
from kernbench.ptx.numerics import FACTORIES

ROOT = Path(kernbench.ptx.__file__).parent
NAMES = {*FORMS, *EFFECTS}
# words of English, of Effects and of modifiers that are names of instructions, too
WORDS = {
    "add",
    "and",
    "bar",
    "barrier",
    "call",
    "exit",
    "fence",
    "match",
    "max",
    "min",
    "not",
    "or",
    "pack",
    "popc",
    "red",
}
WORDS |= {"set", "shf", "trap", "unpack", "wgmma", "xor"}
# the table itself, the grammar of PTX, and what runs, builds or compares single instructions and has to name them
OWN = ("isa", "emulator/fused", "emulator/instructions", "numerics", "reference", "conformance", "text", "names")
OWN += ("builder/instructions", "builder/asynchronous", "builder/matrix")
ASKED = {"opcode", "meaning"}
# a text of one word; one of them is a name wherever there is a list of names
QUOTED = re.compile(r"""["']([\w.:]+)["']""")


def strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def names_an_instruction(node: ast.AST) -> bool:
    """Whether an expression is an opcode or a meaning."""
    if isinstance(node, ast.Attribute):
        return node.attr in ASKED
    return isinstance(node, ast.Name) and node.id in ASKED


def is_list_of_instructions(node: ast.AST) -> bool:
    """Whether something holds or keys two instructions or more by name, and nothing else."""
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        items: list[ast.expr] = node.elts
    elif isinstance(node, ast.Dict):
        items = [key for key in node.keys if key is not None]
    else:
        return False
    known = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    return len(known) > 1 and known <= NAMES and not known <= WORDS


def asks_for_a_name(node: ast.AST) -> bool:
    """Whether an instruction is told from others by its name: `d.meaning == "ld"`, `opcode.startswith("cp")`."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(names_an_instruction, sides)) and any(strings(side) & NAMES for side in sides)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        return names_an_instruction(node.func.value)
    return False


def lists_in(source: str) -> list[int]:
    """The lines at which a source says by names what instructions do."""
    if NAMES.isdisjoint(QUOTED.findall(source)) and "startswith" not in source:
        return []
    nodes = ast.walk(ast.parse(source))
    return sorted({n.lineno for n in nodes if is_list_of_instructions(n) or asks_for_a_name(n)})


def test_every_meaning_has_a_row():
    assert {form.meaning for forms in FORMS.values() for form in forms} == set(EFFECTS)
    assert all(isinstance(effects, Effects) for effects in EFFECTS.values())


def test_a_meaning_without_a_row_is_refused_where_it_is_written():
    group = Group("made up", "sync")
    with pytest.raises(ValueError, match="what 'meet' does is not said"):
        group.row("meet", "", "")
    group.does("meet", Effects(barrier=True, ends_block=True))
    group.row("meet", "", "")
    assert group.forms[0].effects.barrier
    with pytest.raises(ValueError, match="'meet' does is said twice"):
        group.does("meet", Effects())


def test_nobody_else_lists_instructions_to_say_what_they_do():
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(f"{own}/" for own in OWN)):
            found += [f"{name}:{line}" for line in lists_in(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    [
        '_WRITERS = frozenset(("st", "red"))',
        'RULES = {"ld": load, "st": store}',
        'if d.resolved.meaning == "ld": pass',
        'if d.instruction.opcode in ("bra", "ret"): pass',
        'if meaning.startswith(("cp.bulk", "wgmma")): pass',
    ],
)
def test_the_search_finds_such_a_list(planted):
    assert lists_in(planted) == [1]


def test_the_search_leaves_other_words_alone():
    assert lists_in('LOGIC = {"and": 1, "or": 2}\nif law == "copy" or kind in ("load", "store"): pass') == []


def test_what_each_lane_computes_is_what_has_a_function_and_a_move():
    computing = {meaning for meaning, effects in EFFECTS.items() if effects.computes}
    assert set(FACTORIES) <= computing
    assert computing <= set(MEANINGS)
    assert all(EFFECTS[meaning].follows_from == "lane" and not EFFECTS[meaning].orders for meaning in computing)
    assert EFFECTS["vmad"] == LANE_WISE


def test_a_row_does_not_contradict_itself():
    for meaning, effects in EFFECTS.items():
        alone = effects.reads or effects.writes or effects.flow or effects.asynchronous or effects.ends_block
        assert not (effects.computes and alone), meaning
        assert effects.ends_block or not effects.flow, meaning
        assert effects.reads or effects.access not in ("load", "atomic", "reduction"), meaning
        assert effects.writes or effects.access not in ("store", "atomic", "reduction"), meaning
        assert not (effects.barrier and not effects.orders), meaning
        operands = {rule.name for forms in FORMS.values() for f in forms if f.meaning == meaning for rule in f.operands}
        assert {*effects.parts, *filter(None, [effects.value])} <= operands, meaning


def test_every_mutant_that_the_table_names_can_be_made():
    words = {word for effects in EFFECTS.values() for word in effects.mutants}
    assert words == set(mutation._EDITS)


def test_an_opcode_that_leads_elsewhere_does_so_in_all_its_forms():
    for opcode, forms in FORMS.items():
        assert {form.effects.flow for form in forms} == {flow_of(opcode)}
    assert flow_of("bra") == "branch"
    assert flow_of("no such opcode") == ""
