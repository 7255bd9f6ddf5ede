"""The house rules that a machine can check: imports point one way, light rooms stay light, no file grows too large."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kernbench"

# room -> rooms it may import from (besides itself)
ALLOWED = {
    "common": set(),
    "result": {"common"},
    "safety": {"common", "result"},
    "machine": {"common", "result"},
    "golden": {"common", "result"},
    "report": {"common", "result"},
    "timing": {"common", "result", "machine"},
    "triton_emu": {"common", "result", "safety"},
    "mesh": {"common", "result", "safety", "machine", "timing", "triton_emu"},
    "npu": {"common", "result", "safety", "machine", "timing"},
    "ptx": {"common", "result", "safety", "machine", "timing"},
    "bench": {"common", "result", "safety", "machine", "golden", "timing", "triton_emu", "mesh", "npu", "ptx"},
}
ALLOWED["benches"] = ALLOWED["bench"] | {"bench"}
ALLOWED["sweep"] = ALLOWED["bench"] | {"bench"}
ALLOWED["cli"] = ALLOWED["benches"] | {"benches", "report", "sweep"}
COMMON_FILES = {"__init__.py", "compiled.py", "dtypes.py", "errors.py", "ipcq_types.py", "pe_commands.py"}


def imports_of(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.lineno, node.module or ""))
            if node.module == "kernbench":
                found.extend((node.lineno, f"kernbench.{alias.name}") for alias in node.names)
    return found


def rooms() -> list[Path]:
    return sorted(p for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__")


def test_every_room_has_its_rule():
    assert {r.name for r in rooms()} <= set(ALLOWED)


@pytest.mark.parametrize("room", [r.name for r in rooms()])
def test_imports_point_one_way(room):
    wrong = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        for line, module in imports_of(path):
            parts = module.split(".")
            if parts[0] != "kernbench" or len(parts) < 2 or parts[1].startswith("__"):
                continue
            if parts[1] != room and parts[1] in ALLOWED and parts[1] not in ALLOWED[room]:
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
    assert not wrong


def test_the_import_test_sees_a_wrong_arrow(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text("from kernbench import mesh\nimport kernbench.cli.run\n")
    modules = [m for _, m in imports_of(planted)]
    assert "kernbench.mesh" in modules
    assert "kernbench.cli.run" in modules


def test_common_holds_nothing_else():
    assert {p.name for p in (SOURCE / "common").glob("*.py")} == COMMON_FILES


@pytest.mark.parametrize("room", ["common", "result", "safety", "machine", "golden"])
def test_light_rooms_need_neither_greenlet_nor_pydantic(room):
    script = (
        "import sys\n"
        "for name in ('greenlet', 'pydantic', 'threadpoolctl', 'typer'): sys.modules[name] = None\n"
        f"import importlib, pkgutil, kernbench.{room} as room\n"
        f"for m in pkgutil.walk_packages(room.__path__, 'kernbench.{room}.'): importlib.import_module(m.name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_ptx_benches_run_from_the_command_line_without_greenlet_and_perfetto():
    script = (
        "import sys\n"
        "for name in ('greenlet', 'threadpoolctl', 'perfetto'): sys.modules[name] = None\n"
        "from kernbench.cli import app\n"
        "app(['run', 'batched_incremental_attention', '-p', 'one_warp'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "1 of 1 right and safe" in done.stdout, done.stderr


def test_files_stay_readable():
    long = {p.relative_to(SOURCE): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 600}
    assert not long


def test_only_the_command_line_prints():
    printing = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing


DISTRIBUTIONS = {"google": "protobuf"}
PYPROJECT = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text())


def test_every_file_that_is_no_module_goes_into_the_wheel():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["kernbench"]
    packed = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    others = {p for p in SOURCE.rglob("*") if p.is_file() and p.suffix != ".py" and p.parent.name != "__pycache__"}
    assert others == {p for p in packed if p.is_file()}


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_licences_of_what_is_carried_are_there():
    for name in PYPROJECT["project"]["license-files"]:
        assert (SOURCE.parent.parent / name).read_text()


def test_everything_imported_is_declared():
    declared = PYPROJECT["project"]
    extras = [r for group in declared["optional-dependencies"].values() for r in group]
    known = {re.split(r"[<>=\[ ]", r)[0].lower() for r in [*declared["dependencies"], *extras]}
    known |= {"kernbench", "torch", "tests", "benchmarks"} | set(sys.stdlib_module_names)
    for path in [*SOURCE.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]:
        for line, module in imports_of(path):
            top = module.split(".")[0]
            assert DISTRIBUTIONS.get(top, top).lower() in known, f"{path}:{line} imports {top}, which is not declared"
