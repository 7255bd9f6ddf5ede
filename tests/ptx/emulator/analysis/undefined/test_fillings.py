"""Random programs: a finding where what others can see depends on what nobody has defined, and no finding elsewhere."""

from collections import Counter

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.analysis.undefined.filled import Program, Text
from tests.ptx.emulator.analysis.undefined.fillings import Reference

from kernbench import ptx

KINDS = frozenset(("uninitialised-read", "division"))


def found(text):
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros(64 * 32, np.uint32), "out")
    kinds = {one.kind for one in device.launch(ptx.parse(text).kernels["k"], 1, 32, [out, 77]).findings}
    assert kinds <= KINDS, text
    return bool(kinds)


@pytest.mark.parametrize("part", range(4))
def test_findings_are_where_results_depend_on_what_is_undefined(part):
    seen = Counter()
    for seed in sampled.some(range(500 * part, 500 * part + 500), 25):
        program = Program(seed)
        reference, text = Reference(program, seed), Text(program).text
        finding, depends = found(text), reference.depends()
        seen[finding, depends] += 1
        assert finding or not depends or reference.excused, f"seed {seed}: nothing is reported of\n{text}"
        assert not finding or reference.used, f"seed {seed}: nothing undefined is used in\n{text}"
    # programs of both kinds
    assert seen[True, True] > 3
    assert seen[False, False] > 3
