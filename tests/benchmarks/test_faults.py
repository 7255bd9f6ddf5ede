"""Textbook faults: of a sample, the first advice names the fault, and its saving leads to the mended kernel's time.

They are timed by the expansion of PTX, which is the same on every machine.
"""

from pathlib import Path

import pytest
from benchmarks.faults.measuring import row
from benchmarks.faults.pairs import PAIRS, TEXT
from tests import sampled

SMALL = ("one field", "row for each thread", "8 ways", "grid too small", "tail wave", "one address", "blocks too small")
CHOSEN = [pair for pair in PAIRS if not pair.needs_code and (sampled.full() or any(one in pair.fault for one in SMALL))]


@pytest.mark.parametrize("pair", CHOSEN, ids=lambda pair: pair.faulty.entry)
def test_the_first_advice_names_the_fault_and_what_it_costs(pair, monkeypatch):
    monkeypatch.setenv("KERNBENCH_NVDISASM", "/nowhere/nvdisasm")
    found = row(pair)
    assert found.ok, found


def test_the_table_has_a_row_for_each_fault():
    page = Path("docs/ptx-time.md").read_text(encoding="utf-8")
    table = page.partition("<!-- table: faults -->")[2].partition("<!-- end: faults -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    assert [one[0] for one in rows] == [pair.fault for pair in PAIRS]
    assert {one[-1] for one in rows} == {"yes"}
    assert len(PAIRS) > 20


def test_the_text_names_no_folder():
    files = [line for line in TEXT.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith(".file")]
    assert files
    assert not any("/" in line for line in files)
