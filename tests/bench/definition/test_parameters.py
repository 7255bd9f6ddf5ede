"""Parameters from text and values: converted, checked, and refused with the name, the value and what is allowed."""

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.bench import describe, param
from kernbench.bench.definition.parameters import make
from kernbench.common.errors import BenchError, KernbenchError


@dataclass(frozen=True)
class Parameters:
    heads: int = param(8, "heads", low=1, high=64)
    scale: float = param(1.0, "scale", low=0)
    causal: bool = param(True, "mask")
    dtype: str = param("f16", "type", choices=("f16", "f32"))
    lengths: tuple[int, ...] = param((), "lengths", low=0)

    def __post_init__(self):
        if self.heads == 13:
            raise ValueError("13 brings bad luck")


def test_text_becomes_values():
    made = make(Parameters, {"heads": " 4", "scale": "0.5", "causal": "no", "dtype": "f32", "lengths": "1,2,3"})
    assert made == Parameters(4, 0.5, False, "f32", (1, 2, 3))
    assert make(Parameters, {"lengths": ""}).lengths == ()
    assert make(Parameters, {"lengths": (4, 5)}).lengths == (4, 5)
    assert make(Parameters, {"scale": 2}).scale == 2.0
    assert make(Parameters, {}) == Parameters()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"haeds": 1}, "unknown parameter 'haeds'; known: heads, scale, causal, dtype, lengths. Did you mean 'heads'?"),
        ({"heads": "four"}, "parameter heads = 'four': a whole number is wanted"),
        ({"heads": "65"}, "parameter heads = 65: allowed is 1 to 64"),
        ({"heads": True}, "a whole number is wanted"),
        ({"heads": "2.0"}, "a whole number is wanted"),
        ({"scale": "-1"}, "allowed is 0 or more"),
        ({"scale": "nan"}, "parameter scale = nan"),
        ({"causal": "perhaps"}, "yes or no is wanted"),
        ({"dtype": "f64"}, "allowed is f16, f32"),
        ({"lengths": "3,-1"}, "parameter lengths = -1"),
        ({"lengths": "3,x"}, "parameter lengths = 'x'"),
        ({"heads": 13}, "do not fit together: 13 brings bad luck"),
    ],
)
def test_refusals(settings, words):
    with pytest.raises(BenchError) as caught:
        make(Parameters, settings)
    assert words in str(caught.value)


def test_described_for_tables():
    heads, *_, lengths = describe(Parameters)
    assert (heads.name, heads.kind, heads.default, heads.allowed, heads.help) == ("heads", "int", 8, "1 to 64", "heads")
    assert lengths.kind == "int,..."


@settings(max_examples=sampled.examples(15, 100))
@given(st.dictionaries(st.sampled_from(["heads", "scale", "causal", "dtype", "lengths"]), st.text()))
def test_any_text_is_taken_or_refused(settings):
    with suppress(KernbenchError):
        make(Parameters, settings)


def test_parameters_that_cannot_be_set_are_refused():
    @dataclass(frozen=True)
    class Odd:
        heads: "int | None" = None

    @dataclass(frozen=True)
    class Bare:
        heads: int

    @dataclass(frozen=True)
    class Dangling:
        heads: "NoSuchType" = 3  # noqa: F821

    for parameters, words in ((Odd, "its type is"), (Bare, "needs a default"), (Dangling, "cannot be read")):
        with pytest.raises(BenchError, match=words):
            make(parameters, {})


def test_brackets_keep_a_tuple_together():
    for text in ("[1, 2]", " [1,2] ", "1,2"):
        assert make(Parameters, {"lengths": text}).lengths == (1, 2)
    assert make(Parameters, {"lengths": "[]"}).lengths == ()
