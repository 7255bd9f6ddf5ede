"""Checked cases as JUnit XML, the form that build servers read."""

from collections.abc import Sequence
from typing import Protocol
from xml.etree import ElementTree

from kernbench.report.text.findings import formal_text
from kernbench.report.text.plain import plain_text
from kernbench.report.text.verdict import run_text
from kernbench.result.run import Run

# characters that XML 1.0 cannot represent
_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


class Checked(Protocol):
    """One case: a panel of a file, with its run, or the reason why there is none."""

    @property
    def file(self) -> object:
        """The file it is of."""
        ...

    @property
    def panel(self) -> str:
        """Its panel."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took."""
        ...

    @property
    def run(self) -> Run | None:
        """Its run; None if it did not finish."""
        ...

    @property
    def error(self) -> str:
        """Why it did not finish."""
        ...

    @property
    def output(self) -> str:
        """Its printed output."""
        ...

    @property
    def passed(self) -> bool:
        """Whether it is right and safe."""
        ...


def junit_xml(cases: Sequence[Checked]) -> bytes:
    """`cases` have file, panel, seconds, run, error, output and passed; each file is a suite.

    Formal findings of a case that passed are its output.
    """
    root = ElementTree.Element("testsuites")
    for file in dict.fromkeys(str(case.file) for case in cases):
        _suite(root, file, [case for case in cases if str(case.file) == file])
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(root: ElementTree.Element, file: str, cases: list[Checked]) -> None:
    failed = [case for case in cases if not case.passed]
    counts = {"tests": len(cases), "failures": sum(c.run is not None for c in failed)}
    counts["errors"] = len(failed) - counts["failures"]
    attributes = {name: str(count) for name, count in counts.items()}
    seconds = f"{sum(case.seconds for case in cases):.3f}"
    suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(file), **attributes, "time": seconds})
    for case in cases:
        names = {"classname": _clean(file), "name": _clean(case.panel), "time": f"{case.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", names)
        if not case.passed:
            _failure(element, case)
        output = case.output if not case.passed else ""
        if case.passed and case.run is not None and case.run.formal:
            output = plain_text(formal_text(case.run))
        if output:
            ElementTree.SubElement(element, "system-out").text = _clean(output)


def _failure(element: ElementTree.Element, case: Checked) -> None:
    if case.run is None:
        failure = ElementTree.SubElement(element, "error", {"type": "error", "message": _clean(case.error)})
        failure.text = _clean(case.error)
        return
    kinds = [finding.kind for finding in case.run.findings]
    wrong = [str(c.reason) for c in case.run.comparison or [] if not c.passed]
    message = "; ".join([*dict.fromkeys(kinds), *wrong]) or str(case.run.status)
    failure = ElementTree.SubElement(element, "failure", {"type": kinds[0] if kinds else "wrong"})
    failure.set("message", _clean(message))
    failure.text = _clean(plain_text(run_text(case.panel, case.run)))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").translate(_FORBIDDEN)
