"""The house rules that a machine can check: imports point one way, light packages stay light, no file grows too large,
no test looks at a clock.
"""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kernbench"

# package -> packages it may import from (besides itself)
ALLOWED = {
    "common": set(),
    "result": {"common"},
    "safety": {"common", "result"},
    "machine": {"common", "result"},
    "golden": {"common", "result"},
    "timing": {"common", "result", "machine"},
    "triton_emu": {"common", "result", "safety"},
    "targets": {"common", "result", "machine"},
    "report": {"common", "result", "targets"},
    "mesh": {"common", "result", "safety", "machine", "timing", "targets", "triton_emu"},
    "npu": {"common", "result", "safety", "machine", "timing", "targets"},
    "ptx": {"common", "result", "safety", "machine", "timing", "targets"},
    "bench": {"common", "result", "safety", "machine", "golden", "targets"},
}
ALLOWED["kernels"] = {"common", "result", "ptx"}
ALLOWED["torch"] = ALLOWED["kernels"] | {"kernels"}
ALLOWED["benches"] = ALLOWED["bench"] | {"bench", "timing", "triton_emu", "mesh", "npu", "ptx", "kernels"}
ALLOWED["sweep"] = {"common", "result", "safety", "machine", "targets", "bench"}
ALLOWED["cli"] = {"common", "result", "safety", "machine", "report", "targets", "bench", "sweep"}
# a target's own commands and benches of its files: they see what commands see, and nothing sees them; the registry
# names their modules
FRONT = "front"
for target in ("npu", "ptx"):
    ALLOWED[f"{target}.{FRONT}"] = ALLOWED["cli"] | {"cli", "golden", target}
# arrows against the grain that are meant: bundled benches are found by name, as a user's own file is
BY_NAME = {("bench", "benches")}
# four of them are how loops are compiled, or not yet, kept and shared (ADR 69, 70)
COMMON_FILES = {
    "__init__.py",
    "by_numba.py",
    "compiled.py",
    "deferred.py",
    "dtypes.py",
    "errors.py",
    "ipcq_types.py",
    "kept.py",
}
COMMON_FILES |= {"files.py", "native_loops.py", "pe_commands.py", "sharing.py", "visible.py"}


def statements(nodes):
    """All statements, also within others; expressions, which import nothing, are not entered."""
    for node in nodes:
        yield node
        for inside in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, inside, ()))


@cache
def import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """Those of a module, wherever they stand in it; several tests ask for them."""
    return [node for node in statements(ast.parse(text).body) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in import_statements(path.read_text()):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.lineno, node.module or ""))
            if node.module == "kernbench":
                found.extend((node.lineno, f"kernbench.{alias.name}") for alias in node.names)
    return found


def imports_by_name(path: Path) -> list[tuple[int, str]]:
    """What `import_module` and `__import__` are given, as far as the file's own text and constants tell."""
    text = path.read_text()
    if "import_module" not in text and "__import__" not in text:
        return []
    tree = ast.parse(text)
    constants = {
        target.id: str(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and called(node) in ("import_module", "__import__"):
            given = node.args[0]
            parts = given.values if isinstance(given, ast.JoinedStr) else [given]
            found.append((node.lineno, "".join(text_of(part, constants) for part in parts)))
    return found


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def text_of(part: ast.expr, constants: dict[str, str]) -> str:
    """A text where it can be read off; a star stands for what is known only when it runs."""
    if isinstance(part, ast.FormattedValue):
        part = part.value
    if isinstance(part, ast.Constant):
        return str(part.value)
    return constants.get(part.id, "*") if isinstance(part, ast.Name) else "*"


def packages() -> list[Path]:
    return sorted(p for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__")


def test_every_package_has_its_rule():
    fronts = {f"{front.parent.name}.{FRONT}" for front in SOURCE.glob(f"*/{FRONT}")}
    assert {r.name for r in packages()} | fronts == set(ALLOWED)


def against_the_grain(package: str, path: Path) -> list[str]:
    """The imports of a file of `package`, by statement or by name, that its rule does not allow."""
    by_name = [
        (line, module) for line, module in imports_by_name(path) if (package, module_package(module)) not in BY_NAME
    ]
    return [
        f"{path.name}:{line} imports {module}"
        for line, module in imports_of(path) + by_name
        if module_package(module) in ALLOWED.keys() - ALLOWED[package] - {package}
    ]


def module_package(module: str) -> str:
    top, *parts = module.split(".")
    if top != "kernbench" or not parts:
        return ""
    return ".".join(parts[:2]) if parts[1:2] == [FRONT] else parts[0]


def room_of(path: Path) -> str:
    return module_package(".".join(("kernbench", *path.relative_to(SOURCE).parts[:-1])))


@pytest.mark.parametrize("package", [r.name for r in packages()])
def test_imports_point_one_way(package):
    files = sorted((SOURCE / package).rglob("*.py"))
    assert [wrong for path in files for wrong in against_the_grain(room_of(path), path)] == []


def test_the_import_test_sees_a_wrong_arrow(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text(
        "from kernbench import mesh\n"
        "import kernbench.cli.commands.run\n"
        "HIDDEN = 'kernbench.report'\n"
        "import_module('kernbench.report.export.notebook')\n"
        "importlib.import_module(f'{HIDDEN}.page')\n"
        "import_module(f'{HIDDEN}.{name}')\n"
        "import_module(f'{__name__}.recording')\n"
        "from kernbench.result.finding import SourceLocation\n"
        "import kernbench.ptx.front.artefact\n"
        "def later():\n"
        "    try: import kernbench.npu\n"
        "    except ImportError: from kernbench import ptx\n"
    )
    wrong = [
        "1 imports kernbench.mesh",
        "2 imports kernbench.cli.commands.run",
        "9 imports kernbench.ptx.front.artefact",
    ]
    wrong += ["11 imports kernbench.npu", "12 imports kernbench.ptx", "4 imports kernbench.report.export.notebook"]
    wrong += ["5 imports kernbench.report.page", "6 imports kernbench.report.*"]
    assert against_the_grain("result", planted) == [f"planted.py:{one}" for one in wrong]
    assert "planted.py:9 imports kernbench.ptx.front.artefact" in against_the_grain("ptx", planted)
    assert "planted.py:11 imports kernbench.npu" in against_the_grain("ptx.front", planted)


def test_common_holds_nothing_else():
    assert {p.name for p in (SOURCE / "common").glob("*.py")} == COMMON_FILES


def test_light_packages_need_neither_greenlet_nor_pydantic():
    script = (
        "import importlib, pkgutil, sys\n"
        "for name in ('greenlet', 'pydantic', 'threadpoolctl', 'typer'): sys.modules[name] = None\n"
        "for name in ('common', 'result', 'safety', 'machine', 'golden', 'targets', 'mesh.time'):\n"
        "    package = importlib.import_module(f'kernbench.{name}')\n"
        "    for m in pkgutil.walk_packages(package.__path__, f'kernbench.{name}.'): importlib.import_module(m.name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.programs
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


# targets are equals: no package above them names one
TARGET_NAMES = re.compile(r"\b(mesh|npu|ptx)\b", re.IGNORECASE)
ABOVE_TARGETS = ("bench", "cli", "sweep", "report", "timing", "result", "targets")
# the one file that may: its rows are what is known of the bundled targets before any is imported. Entry points of this
# package itself could hold them, but reading those makes `kernbench --help` a third slower.
NAMING = {"targets/registry.py"}


def target_names(path: Path) -> list[str]:
    """Where the code of a file names a target: modules it imports, names, texts; docstrings and comments are free."""
    text = path.read_text()
    if not TARGET_NAMES.search(text.replace("_", " ")):
        return []
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(node.value) for node in first if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        texts = [str(getattr(node, field, "") or "") for field in ("id", "attr", "arg", "name", "module")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            texts.append(node.value)
        words = [text.replace("_", " ") for text in texts]
        found += [f"{path.name}:{node.lineno} {word}" for word in words if TARGET_NAMES.search(word)]
    return found


def test_no_package_above_the_targets_names_one():
    files = {path for package in ABOVE_TARGETS for path in (SOURCE / package).rglob("*.py")}
    files -= {SOURCE / name for name in NAMING}
    assert [found for path in sorted(files) for found in target_names(path)] == []


def test_the_registry_names_modules_that_are_there():
    from kernbench.targets.registry import BUNDLED

    modules = [row.module for row in BUNDLED] + [row.folders for row in BUNDLED if row.folders]
    modules += [row.commands.module for row in BUNDLED if row.commands is not None]
    for module in modules:
        path = SOURCE.parent.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), module


def test_a_file_that_names_a_target_is_seen(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text(
        '"""For the npu."""\n'
        "from kernbench.npu.time import clock\n"
        "from kernbench import ptx\n"
        "# ptx\n"
        "def find_mesh(run):\n"
        '    """On the mesh."""\n'
        "    return run.target == 'mesh' or hasattr(run, 'meshes')\n"
    )
    lines = [int(found.split(":")[1].split()[0]) for found in target_names(planted)]
    assert sorted(lines) == [2, 3, 5, 7]


# how many files lie side by side in a folder; and no folder imports one that imports it
MOST_FILES = 15


def crowded(package: Path) -> dict[str, int]:
    """Folders with too many modules side by side, `__init__.py` not counted."""
    folders = sorted({path.parent for path in package.rglob("*.py")})
    counts = {folder: len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) for folder in folders}
    return {folder.name: count for folder, count in counts.items() if count > MOST_FILES}


def names_imported(path: Path) -> list[tuple[int, str]]:
    """What a file imports, also for types alone or by name; `from a import b` may mean the package a.b."""
    found = imports_by_name(path)
    for node in import_statements(path.read_text()):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def folder_of(name: str, package: Path) -> Path | None:
    """The folder in which an imported module of the package lies; None for what lies elsewhere."""
    prefix = f"kernbench.{package.name}"
    if name != prefix and not name.startswith(f"{prefix}."):
        return None
    folder = package
    for part in name.removeprefix(prefix).lstrip(".").split("."):
        if not part or not (folder / part).is_dir():
            break
        folder /= part
    return folder


def folder_arrows(package: Path) -> dict[Path, set[Path]]:
    """For each folder of a package the others that its modules import from."""
    arrows: dict[Path, set[Path]] = {}
    for path in package.rglob("*.py"):
        targets = {folder_of(name, package) for _, name in names_imported(path)} - {None, path.parent}
        arrows.setdefault(path.parent, set()).update(targets)
    return arrows


def circle(package: Path) -> list[str]:
    """Folders that import each other, directly or through others; empty where all arrows point one way."""
    try:
        TopologicalSorter(folder_arrows(package)).prepare()
    except CycleError as error:
        return [folder.name for folder in error.args[1]]
    return []


def test_folders_hold_few_files():
    assert crowded(SOURCE) == {}


@pytest.mark.parametrize("package", [package.name for package in packages()])
def test_folders_import_one_way(package):
    assert circle(SOURCE / package) == []


def test_crowded_folders_and_circles_of_folders_are_seen(tmp_path):
    package = tmp_path / "npu"
    for folder in ("one", "two", "three"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text("")
    for number in range(MOST_FILES):
        (package / "one" / f"m{number}.py").write_text("from kernbench.npu.two.first import x\n")
    (package / "two" / "first.py").write_text("import kernbench.npu.three.second\n")
    assert crowded(package) == {}
    assert circle(package) == []
    (package / "one" / "more.py").write_text("")
    assert crowded(package) == {"one": MOST_FILES + 1}
    for back in ("from kernbench.npu import one", "from kernbench.npu.one import m0", "import kernbench.npu.one.m1"):
        (package / "three" / "second.py").write_text(
            f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {back}\n"
        )
        assert set(circle(package)) == {"one", "two", "three"}


# stands wherever a call is
PRINTED = re.compile(r"\bprint\s*\(")


def test_only_the_command_line_prints():
    printing = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "cli" and PRINTED.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing


CLOCKS = {
    f"{name}{ns}" for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time") for ns in ("", "_ns")
}
CLOCK_IN_TEXT = re.compile(rf"\btime\.({'|'.join(sorted(CLOCKS))})\b")
# one of them stands wherever there is anything to find
CLOCK_WORDS = re.compile(r"\btime\.\w|\bfrom time import\b|\btimeit\b|\btimeout\s*=")
# seconds that a program gets at least before a test gives it up: only one that hangs takes as long on a busy machine
PATIENCE = 600
# file -> why it may look at a clock, or be impatient
TIMED = {
    "test_check_isolated.py": "hands the code it tests a clock that jumps once a bench is where it stays for ever",
    "test_children.py": "hands the code it tests a clock that jumps once a program is where it stays for ever",
    "test_kills.py": "dates the lease of a machine that is not heard of any more",
}


def timed(path: Path) -> list[str]:
    """Where a test looks at a clock, or a program does whose text it holds, or where it waits briefly for a program."""
    found = []
    text = path.read_text()
    if not CLOCK_WORDS.search(text):
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "time" and node.attr in CLOCKS:
            found.append(f"{path.name}:{node.lineno} time.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found.extend(f"{path.name}:{node.lineno} {alias.name}" for alias in node.names if alias.name in CLOCKS)
        elif isinstance(node, ast.Import) and any(alias.name == "timeit" for alias in node.names):
            found.append(f"{path.name}:{node.lineno} timeit")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CLOCK_IN_TEXT.search(node.value):
            found.append(f"{path.name}:{node.lineno} a clock in a program's text")
        elif isinstance(node, ast.Call) and called(node) in ("run", "Popen", "communicate", "wait", "check_output"):
            brief = [k.value.value for k in node.keywords if k.arg == "timeout" and isinstance(k.value, ast.Constant)]
            found.extend(f"{path.name}:{node.lineno} timeout={n}" for n in brief if n is not None and n < PATIENCE)
    return found


def test_no_test_looks_at_a_clock():
    files = [path for path in Path(__file__).parent.rglob("*.py") if path.name not in TIMED and path != Path(__file__)]
    assert [use for path in sorted(files) for use in timed(path)] == []


def test_a_test_that_looks_at_a_clock_is_seen(tmp_path):
    planted = tmp_path / "test_planted.py"
    planted.write_text(
        "import time\nfrom time import monotonic, sleep\nimport timeit\n"
        "began = time.perf_counter()\ntime.sleep(1)\n"
        "SCRIPT = 'end = time.monotonic() + 3'\n"
        "subprocess.run(command, timeout=60)\nsubprocess.run(command, timeout=900)\n"
        "monkeypatch.setattr(module.time, 'monotonic', fake)\n"
    )
    uses = ["2 monotonic", "3 timeit", "4 time.perf_counter", "6 a clock in a program's text", "7 timeout=60"]
    assert sorted(timed(planted)) == [f"test_planted.py:{use}" for use in uses]


# functions of whole numbers that keep all they gave, file -> why there are few
FINITE = {
    "arithmetic.py": "bits of a register",
    "bitwise.py": "bits of a register, entries of a table of eight",
    "extremes.py": "operands of an instruction",
    "instruction.py": "shapes, and lanes of tensor memory",
    "launches.py": "devices of this computer",
    "layout.py": "shapes of instructions",
    "tensor_core.py": "lanes of tensor memory",
    "tensor_memory.py": "shapes of instructions",
    "word_loads.py": "bytes of a register",
}


def kept_for_ever(path: Path) -> list[str]:
    """Functions that are given whole numbers, which may be any of a program's, and keep what they gave for each."""
    text = path.read_text()
    if "cache" not in text:
        return []
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and {"cache", "functools.cache"} & set(
            map(ast.unparse, node.decorator_list)
        ):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if any(one.annotation is not None and ast.unparse(one.annotation) == "int" for one in given):
                found.append(f"{path.name}:{node.lineno} {node.name}")
    return found


def test_what_is_kept_without_a_bound_is_finite():
    found = {one for path in SOURCE.rglob("*.py") for one in kept_for_ever(path)}
    assert {one.partition(":")[0] for one in found} == set(FINITE), found


def test_a_function_that_keeps_all_numbers_is_seen(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text(
        "from functools import cache, lru_cache\n"
        "@cache\ndef of(address: int): ...\n"
        "@cache\ndef named(name: str): ...\n"
        "@lru_cache(64)\ndef bounded(address: int): ...\n"
    )
    assert kept_for_ever(planted) == ["planted.py:3 of"]


DISTRIBUTIONS = {"google": "protobuf", "_pytest": "pytest", "xdist": "pytest-xdist"}
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
