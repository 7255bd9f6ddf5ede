"""What the type checker is shown of `tl` is what `tl` has: kernels are typed with `tl: "TLContext"`."""

from inspect import get_annotations, signature
from types import SimpleNamespace
from typing import get_overloads

from tests import sampled

from kernbench.triton_emu.operations.computing import Computing
from kernbench.triton_emu.operations.signatures import Binary, Unary
from kernbench.triton_emu.tl_context import ELEMENTWISE, Lent, TLContext

FORMS = get_annotations(TLContext)


def overloads(protocol):
    """The forms of a protocol's `__call__`, which is only there for the type checker and has lost its name."""
    name = SimpleNamespace(__module__=protocol.__module__, __qualname__=f"{protocol.__name__}.__call__")
    return get_overloads(name)


def parameters(function):
    """Names of parameters, without self."""
    return [name for name in signature(function).parameters if name != "self"]


@sampled.each(FORMS)
def test_each_form_has_the_parameters_of_the_operation(name):
    assert isinstance(vars(TLContext)[name], Lent)
    forms = overloads(FORMS[name])
    assert len(forms) > 1
    for form in forms:
        assert parameters(form) == parameters(getattr(Computing, name)), form


def test_elementwise_operations_are_shown_by_their_operands():
    assert {name: FORMS.get(name) for name in ELEMENTWISE} == {
        name: Unary if operands == 1 else Binary for name, (_, operands, _) in ELEMENTWISE.items()
    }


def test_numbers_give_numbers_and_handles_give_handles():
    tl = TLContext()
    handle = tl.zeros((2, 3))
    for name, (_, operands, _) in ELEMENTWISE.items():
        call = getattr(tl, name)
        assert type(call(*[handle] * operands)) is type(handle), name
        assert type(call(*[2.0] * operands)) in (float, int, bool), name
    assert type(tl.maximum(1, handle)) is type(tl.clamp(1.0, 0.0, handle)) is type(handle)
    assert len(tl.max(handle, 1, return_indices=True)) == 2
