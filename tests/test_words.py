"""The field's words, one meaning each (docs/glossary.md): what no name, comment or message says, and a ceiling that
only falls for *place*, which stands for no source location.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kernbench"
# a word by itself, or a part of a name: `told`, `told_by`, `_tell_caught`, `Telling`, `_TOLD`
PART = r"(?<![A-Za-z])(?:{})(?![A-Za-z])"
# what stands there instead: report, record, signal, publish, distinguish; pass
GONE = re.compile(PART.format("tells?|told|telling|tellers?|(?:hand|hands|handed|handing) over"), re.IGNORECASE)
# what stands there instead: source location, offset, address, index, position, slot
PLACE = re.compile(PART.format("places?|placed|PLACES?"))
# ordinary English, and the verb of tiles and labels
IDIOMS = re.compile(
    r"\bin[ _-]place\b|\bin (?:the|its|their) place\b|\bt(?:ake|akes|ook|aking)\b[\w' ]{0,24}\bplaces?\b"
    r"|\b(?:last|decimal|binary|one) places?\b|\b(?:swap|change) places\b"
)
# package -> how often *place* may stand in it, as the verb of tiles, labels and ranks, and in published names
CEILINGS = {
    "benches": 3,
    "cli": 1,
    "kernels": 1,
    "mesh": 3,
    "npu": 9,
    "ptx": 25,
    "result": 1,
    "sweep": 1,
    "triton_emu": 9,
}
# the packages' ceilings may be moved against each other, their sum only falls
ALL_PACKAGES = 53


def gone(text: str) -> list[int]:
    """Lines that say what is not said any more."""
    return [number for number, line in enumerate(text.splitlines(), 1) if GONE.search(line)]


def places(text: str) -> int:
    """How often a text says *place*, ordinary English aside."""
    return len(PLACE.findall(IDIOMS.sub("", text)))


def test_nothing_is_told():
    files = sorted(SOURCE.rglob("*.py"))
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in gone(path.read_text())]
    assert not found, "say report, record, signal, publish or distinguish; pass, not hand over"


def test_place_stands_in_fewer_and_fewer_lines():
    found = Counter()
    for path in SOURCE.rglob("*.py"):
        found[path.relative_to(SOURCE).parts[0]] += places(path.read_text())
    more = {
        package: (count, CEILINGS.get(package, 0))
        for package, count in found.items()
        if count > CEILINGS.get(package, 0)
    }
    assert not more, "say offset, address, index, position, slot or source location (docs/glossary.md)"
    assert sum(CEILINGS.values()) <= ALL_PACKAGES


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("told = 1\n_told = told_by(x)\n_TOLD = 8\n", [1, 2, 3]),
        ("class Telling: ...\n# an mbarrier tells\n'to tell apart'\n", [1, 2, 3]),
        ("# as they are handed over\n", [1]),
        ("satellite = untold = intellect = 1\nhand, over = 1, 2\n", []),
    ],
)
def test_words_that_are_gone_are_seen(text, lines):
    assert gone(text) == lines


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("place = places[0]\nself._place(by_place, Place(1))\n# at a place\n", 5),
        ("x.replace(a, b)\nplacement = in_place(1)\n# computed in place; it takes the older one's place\n", 0),
        ("# the last place of a float, three decimal places\n", 0),
    ],
)
def test_places_are_counted(text, count):
    assert places(text) == count
