"""`tl` is an engine and parts: what the parts have is what `tl` lends, each name from one of them."""

from collections import Counter

import pytest

from kernbench.triton_emu.engine.core import Core
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.tl_context import _KINDS, Lent, TLContext


def public(kind):
    return [name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]


def test_a_context_is_no_engine_and_no_part():
    assert TLContext.__mro__ == (TLContext, object)
    assert all(kind.__mro__ == (kind, Part, object) for kind in _KINDS.values())
    assert not issubclass(Part, Core)


def test_every_operation_of_a_part_is_lent_and_nothing_else():
    names = Counter(name for kind in _KINDS.values() for name in public(kind))
    assert [name for name, parts in names.items() if parts > 1] == []
    lent = {name for name, value in vars(TLContext).items() if isinstance(value, Lent)}
    assert lent - {"adopt"} == set(names) - {"constexpr", "static_range"}
    assert {type(getattr(TLContext().parts, name)) for name in _KINDS} == set(_KINDS.values())


def test_a_name_is_bound_once_and_is_the_function_of_the_class():
    tl = TLContext()
    assert "load" not in vars(tl)
    assert tl.load is tl.load
    assert tl.load.__func__ is TLContext.load
    with pytest.raises(AttributeError, match="'TLContext' object has no attribute 'lode'"):
        tl.lode
