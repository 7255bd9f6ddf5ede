"""Sums of f32 that memory makes: with the subnormal numbers and NaNs of an H200, in every way PTX has."""

import numpy as np
import pytest
from tests.ptx.emulator.instructions.sums import MAPS, WAYS, expected, sums

from kernbench import ptx


@pytest.mark.parametrize("way", [*WAYS, *MAPS])
def test_sums_of_special_numbers(way):
    run, result = sums(way, ptx.EmulatedDevice("sm_90a"))
    assert run.findings == []
    np.testing.assert_array_equal(result, expected(way))
