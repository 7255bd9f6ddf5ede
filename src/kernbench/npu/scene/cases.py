"""Finds the tests of a file or folder: its classes, their sources, and the cases for a chip."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernbench.common.errors import BenchError, said, unknown
from kernbench.npu.scene.modules import load, offered, why_not
from kernbench.npu.scene.offered import SceneTestCase

CHIPS = ("a2a3", "a5")
# the level of host programs
HOST = 3


@dataclass(frozen=True)
class Case:
    """One case of a test class, on one chip; `refusal` says why it cannot run here."""

    file: Path
    test: type[SceneTestCase]
    name: str
    chip: str
    params: dict[str, object] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    skips_golden: bool = False
    refusal: str = ""
    level: int = 2

    @property
    def title(self) -> str:
        """Class and case."""
        return f"{self.test.__name__}.{self.name}"


def files_in(path: Path) -> list[Path]:
    """The files with test classes at a path."""
    if path.is_file():
        return [path.resolve()]
    if not path.is_dir():
        raise BenchError(f"{path} is neither a file nor a folder with @scene_test classes")
    found = [f for f in sorted(path.rglob("*.py")) if "@scene_test" in f.read_text(errors="replace")]
    if not found:
        raise BenchError(f"{path} has no file with a @scene_test class")
    return [f.resolve() for f in found]


def cases_of(
    file: Path, platform: str = "", wanted: Sequence[str] = (), changes: Mapping[str, object] | None = None
) -> list[Case]:
    """The cases of a file for a platform ("a2a3", "a5", or the first that a case names): by name, all of them
    ("all"), or by default those that are not marked as manual.
    """
    if platform and platform.removesuffix("sim") not in CHIPS:
        raise BenchError(unknown("platform", platform, CHIPS))
    try:
        with offered(file):
            module = load(file)
    except ImportError as error:
        raise BenchError(f"{file} cannot be read: {why_not(error)}") from None
    except Exception as error:
        raise BenchError(f"{file} cannot be read: it raises {said(error)}") from None
    tests = [
        t for t in vars(module).values()
        if isinstance(t, type) and issubclass(t, SceneTestCase) and t.SCENE and t.__module__ == module.__name__
    ]  # fmt: skip
    found = [case for test in tests for case in _cases(file, test, platform, wanted, changes or {})]
    if wanted and "all" not in wanted and not found:
        names = [str(case.get("name")) for test in tests for case in test.CASES]
        raise BenchError(f"{file}: {unknown('case', ', '.join(wanted), names)}")
    return found


def _cases(
    file: Path, test: type[SceneTestCase], platform: str, wanted: Sequence[str], changes: Mapping[str, object]
) -> list[Case]:
    level, _ = test.SCENE or (2, "")
    found = []
    for case in test.CASES:
        name = str(case.get("name", "default"))
        platforms = [str(p) for p in _list(case.get("platforms"))]
        chip = platform.removesuffix("sim") or (platforms[0].removesuffix("sim") if platforms else CHIPS[0])
        if platforms and not {chip, f"{chip}sim"} & set(platforms):
            continue
        if wanted and "all" not in wanted and name not in wanted and f"{test.__name__}.{name}" not in wanted:
            continue
        if not wanted and _is_manual(case.get("manual"), chip):
            continue
        params = {**_mapping(case.get("params")), **changes}
        skips = bool(case.get("skip_golden", test.SKIP_GOLDEN))
        config = _mapping(case.get("config"))
        refusal = _refusal(test, level, config.get("device_count", 1))
        found.append(Case(file, test, name, chip, params, config, skips, refusal, level))
    return found


def _refusal(test: type[SceneTestCase], level: int, chips: object) -> str:
    if level > HOST:
        return f"level {level}: a program of the host drives several hosts"
    if level == HOST and chips != 1:
        return f"level {level}: a program of the host drives several chips ({chips})"
    has_program = level == HOST and callable(getattr(test, "test_run", None))
    return "" if has_program or "orchestration" in test.CALLABLE else "it names no orchestration"


def _is_manual(mark: object, chip: str) -> bool:
    """Whether a case is marked as manual; a list names the platforms on which it is."""
    return bool({chip, f"{chip}sim"} & {str(p) for p in mark}) if isinstance(mark, (list, tuple, set)) else bool(mark)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, Mapping) else {}
