"""What methods of the builder take by name is what the ISA table has, so that editors can complete it."""

import inspect
import typing

from tests import sampled

from kernbench.ptx.builder import Context
from kernbench.ptx.builder.values import options
from kernbench.ptx.isa.table import FORMS, forms_of

SLOTS = {slot.name for opcode in FORMS for form in forms_of(opcode) for slot in form.slots}
# what is no modifier: results, guards, operands, and what goes into a tcgen05 descriptor
OTHERS = {"out", "pred", "pair", "policy", "index", "width", "no_complete"}
OTHERS |= {"trans_a", "trans_b", "negate_a", "negate_b", "saturate", "scale_type", "scale_ids"}
# what methods say themselves, from their other parameters or the types of their values
GIVEN = {
    "type",
    "dtype",
    "atype",
    "btype",
    "ctype",
    "sync",
    "cmp",
    "dir",
    "bool",
    "pack",
    "abs",
    "vec",
    "hint",
    "space",
}
GIVEN |= {"aligned", "noftz", "warp", "cta", "cluster", "shape", "num", "alayout", "blayout"}
GIVEN |= {"trans", "async", "completion", "mma_async", "op", "popc", "sp"}


def names_taken(method) -> set[str] | None:
    """Keywords of a method with what its `**how` takes; None where it has no such."""
    parameters = inspect.signature(method).parameters
    how = next((one.annotation for one in parameters.values() if one.kind is one.VAR_KEYWORD), None)
    if typing.get_origin(how) is not typing.Unpack:
        return None
    return set(parameters) | typing.get_type_hints(typing.get_args(how)[0]).keys()


def test_options_are_slots_of_the_table():
    classes = [one for one in vars(options).values() if typing.is_typeddict(one)]
    named = {key for one in classes for key in typing.get_type_hints(one)}
    assert len(classes) > 20
    assert named - SLOTS - OTHERS == set()


METHODS = [name for name, _ in inspect.getmembers(Context, inspect.isfunction) if name.rstrip("_") in FORMS]


@sampled.each([name for name in METHODS if names_taken(getattr(Context, name)) is not None])
def test_every_modifier_of_an_instruction_can_be_named(name):
    slots = {slot.name for form in forms_of(name.rstrip("_")) for slot in form.slots}
    assert slots - names_taken(getattr(Context, name)) - GIVEN == set()
