"""What is formal stands apart from faults in every run, whatever its target."""

from dataclasses import replace

from kernbench.result import Finding, FindingLog, Run, SourceLocation, Status
from kernbench.result.finding import FAULT, FORMAL
from kernbench.result.launches import joined
from kernbench.result.load import load_runs
from kernbench.safety.stopping import Stopper, stop_at

LINE = SourceLocation("k.py", 3, "k")


def finding(severity, message="m"):
    return Finding("race", message, LINE, severity=severity)


def collected(*findings):
    """The run that a host makes of what its checks collected."""
    log = FindingLog()
    for one in findings:
        log.add(one)
    return Run({}, log.findings(), ("race",), Status.FINISHED)


def test_a_host_hands_over_all_it_found():
    run = collected(finding(FORMAL))
    assert run.safe
    assert (run.findings, run.formal) == ([], [finding(FORMAL)])
    both = collected(finding(FORMAL), replace(finding(FAULT), kind="deadlock"))
    assert not both.safe
    assert ([f.kind for f in both.findings], [f.kind for f in both.formal]) == (["deadlock"], ["race"])


def test_a_fault_is_not_folded_into_a_formal_one_of_its_line():
    run = collected(finding(FORMAL), finding(FAULT), finding(FAULT))
    assert not run.safe
    assert [f.count for f in (*run.findings, *run.formal)] == [2, 1]


def test_a_strict_run_stays_strict(tmp_path):
    """Copied, joined with other launches, saved and loaded: what was formal counts, and once."""
    run = collected(finding(FORMAL))
    launches = [replace(run), collected(finding(FORMAL, "another"))]
    for one in (run, *launches):
        one.strict()
    whole = joined(run, launches)
    assert [f.message for f in whole.findings] == ["m", "another"]
    whole.save(tmp_path / "run.json")
    (loaded,) = load_runs(tmp_path / "run.json").runs
    for held in (run, replace(run), whole, loaded, *loaded.launches):
        assert held.safe is False
        assert held.formal == []


def test_a_strict_run_of_an_older_file_is_not_safe(tmp_path):
    run = collected(finding(FAULT))
    run.findings = [finding(FORMAL)]
    run.save(tmp_path / "run.json")
    (loaded,) = load_runs(tmp_path / "run.json").runs
    assert loaded.safe is False


def test_a_stopper_minds_what_is_formal_only_where_it_is_strict():
    for strict in (False, True):
        stopper = Stopper(stop_at("finding"), strict)
        assert stopper.minds(finding(FAULT))
        assert stopper.minds(finding(FORMAL)) is strict
