"""Versions and targets of PTX: which exist, and since when."""

import re

# major version -> its last minor; some in between were never released
_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8, 9: 0}
NEWEST = (9, 0)
# target -> the first version that has it
TARGETS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("sm_10", "sm_11"), (1, 0)),
    **dict.fromkeys(("sm_12", "sm_13"), (1, 2)),
    **dict.fromkeys(("sm_20", "sm_21"), (2, 0)),
    "sm_30": (3, 0),
    "sm_32": (4, 0),
    "sm_35": (3, 1),
    "sm_37": (4, 1),
    "sm_50": (4, 0),
    "sm_52": (4, 1),
    "sm_53": (4, 2),
    **dict.fromkeys(("sm_60", "sm_61", "sm_62"), (5, 0)),
    "sm_70": (5, 1),
    "sm_72": (6, 1),
    "sm_75": (6, 3),
    "sm_80": (7, 0),
    "sm_82": (6, 2),
    "sm_86": (7, 1),
    "sm_87": (7, 4),
    "sm_88": (7, 3),
    **dict.fromkeys(("sm_89", "sm_90"), (7, 8)),
    "sm_90a": (8, 0),
    **dict.fromkeys(("sm_100", "sm_100a", "sm_101", "sm_101a"), (8, 6)),
    **dict.fromkeys(("sm_120", "sm_120a"), (8, 7)),
    **dict.fromkeys(("sm_100f", "sm_101f", "sm_103", "sm_103a", "sm_103f", "sm_120f"), (8, 8)),
    **dict.fromkeys(("sm_121", "sm_121a", "sm_121f"), (8, 8)),
    **dict.fromkeys(("sm_110", "sm_110a", "sm_110f"), (9, 0)),
}
# family -> its members: code for a target with "f" runs on the members from its own number on
FAMILIES: dict[str, tuple[int, ...]] = {"100f": (100, 103), "101f": (101,), "110f": (110,), "120f": (120, 121)}
# options that may follow a target
OPTIONS = ("debug", "texmode_unified", "texmode_independent", "map_f64_to_f32")


def known_version(version: tuple[int, int]) -> bool:
    """Whether a version exists; minor versions above the newest are accepted, too."""
    major, minor = version
    return minor <= _LAST_MINOR.get(major, -1) or major == NEWEST[0]


def known_versions() -> str:
    """The existing versions, as text."""
    return ", ".join(f"{major}.0 to {major}.{last}" if last else f"{major}.0" for major, last in _LAST_MINOR.items())


def target_number(target: str) -> int:
    """90 for "sm_90a"; 0 for names that are no targets."""
    match = re.fullmatch(r"(?:sm|compute)_(\d{1,6})[af]?", target)
    return int(match[1]) if match else 0
