"""A short, seeded run of the fuzzers; `benchmarks/ptx_fuzz.py` is the long one."""

from benchmarks.ptx_fuzz import mutated_modules, mutated_statements, run, statements_module, statements_of, whole_module
from tests import sampled
from tests.ptx.corpus import MIXED

from kernbench.ptx.isa import FORMS


def test_mutated_statements():
    statements = statements_of([form for rows in FORMS.values() for form in rows], [MIXED])
    report = run(mutated_statements(statements, sampled.examples(4_000, 8_000), seed=1), statements_module, 20)
    assert report.failures == []
    assert report.accepted > sampled.examples(250, 500)
    assert report.refused > 500


def test_mutated_modules():
    report = run(mutated_modules([MIXED], 150, seed=2), whole_module, 20)
    assert report.failures == []
    assert report.refused > 10
