"""What a compiler leaves in its cache for a kernel: the PTX, and metadata about its launch.

Triton writes NAME.ptx, NAME.json (warps, shared memory, cluster, scratch) and NAME.ttir (names and types of arguments)
into one folder. CuTe DSL (CUTE_DSL_KEEP=ptx,ir) writes NAME.ptx, and an .mlir file with grid, block and the layouts of
tensors; without the latter, only the PTX's own block and cluster sizes are known.
"""

import json
import re
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from kernbench.common.errors import BenchError
from kernbench.ptx.doors.terms.blame import Compiler, triton
from kernbench.ptx.front.launch_file import LaunchFile
from kernbench.ptx.text.module import Kernel, Parameter

WARP = 32
# Triton's element types -> kernbench's
_TYPES = {"f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "i1": "u8", "i8": "i8", "i16": "i16", "i32": "i32"}
_TYPES |= {"i64": "i64", "f8E4M3FN": "f8e4m3", "f8E5M2": "f8e5m2"}
TENSOR_MAP_BYTES, POINTER_BYTES = 128, 8
# how many files of a folder an error message lists
MAX_FILES_LISTED = 8
# patterns of CuTe DSL: kernels of the PTX, type aliases, and a tensor with its element type and layout
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_ALIAS = re.compile(r"^(!\w+) = (.*)$", re.MULTILINE)
_MEMORY = re.compile(r'!cute\.memref<(\w+), gmem[^"]*"([^:"]*):')
_FUNCTION = re.compile(r"tt\.func public @\S+?\((.*?)\)\s*(?:attributes|\{)", re.DOTALL)
_ARGUMENT = re.compile(r"%(\w+): (!tt\.ptr<[^>]*>|[\w!.<>]+)")


@dataclass(frozen=True)
class Artefact:
    """The PTX file of a kernel, and what the metadata says of its launch; `arguments` are pairs of name and type."""

    ptx: Path
    kernel: str = ""
    threads: int = 0
    shared_bytes: int | None = None
    cluster: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    grid: tuple[int, ...] = ()
    # array parameters: index, element type, number of elements (0: dynamic)
    arrays: tuple[tuple[int, str, int], ...] = ()
    # where the language leaves some faults to the compiler alone
    compiler: Compiler | None = None

    def described(self, base: LaunchFile, kernel: Kernel, elements: int) -> LaunchFile:
        """The launch as `base` and the metadata describe it together; `base` takes precedence."""
        args = {self._number(key, kernel): dict(table) for key, table in base.args.items()}
        known: dict[str, dict[str, object]] = {
            str(n): {"dtype": kind, "shape": [size or elements]} for n, kind, size in self.arrays
        }
        known |= self._typed(kernel, elements)
        made_up = frozenset(known) - set(args) - set(scratch := self._scratch(kernel, base.grid))
        for number, table in {**known, **scratch}.items():
            args.setdefault(number, table)
        return replace(
            base,
            kernel=base.kernel or self.kernel,
            block=base.block or ((self.threads,) if self.threads else ()),
            shared_bytes=self.shared_bytes if base.shared_bytes is None else base.shared_bytes,
            cluster=base.cluster or self.cluster,
            args=args,
            made_up=made_up,
            names=dict(zip((p.name for p in kernel.params), (name for name, _ in self.arguments), strict=False)),
        )

    def _number(self, key: str, kernel: Kernel) -> str:
        """The index, as text, of a parameter that is named as in the PTX or as in the source."""
        own, names = [p.name for p in kernel.params], [name for name, _ in self.arguments]
        if key in own:
            return str(own.index(key))
        return str(names.index(key)) if key in names and len(names) <= len(own) else key

    def _typed(self, kernel: Kernel, elements: int) -> dict[str, dict[str, object]]:
        """Arrays for pointer arguments, of the element types that Triton's metadata names."""
        if len(self.arguments) + len(self.scratch) != len(kernel.params):
            return {}
        return {
            str(number): {"dtype": _TYPES[kind], "shape": [elements]}
            for number, (_, text) in enumerate(self.arguments)
            if (kind := _pointee(text)) in _TYPES
        }

    def _scratch(self, kernel: Kernel, grid: tuple[int, ...]) -> dict[str, dict[str, object]]:
        """The pointers to scratch memory that Triton appends to the arguments."""
        blocks = 1
        for extent in grid or (1,):
            blocks *= extent
        first = len(kernel.params) - len(self.scratch)
        return {
            str(first + n): {"dtype": "u8", "shape": [size * blocks], "fill": "zeros"} if size else {"value": 0}
            for n, size in enumerate(self.scratch)
        }


def _pointee(text: str) -> str:
    found = re.match(r"!tt\.ptr<(\w+)", text)
    return found.group(1) if found else ""


def read_artefact(path: Path) -> Artefact:
    """The artefact in a folder of a compiler's cache, or the one that a .ptx or .json file belongs to."""
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise BenchError(f"there is no {path}")
    text, metadata = path.with_suffix(".ptx"), path.with_suffix(".json")
    if not text.is_file():
        raise BenchError(f"{path}: there is no {text.name} beside it")
    return _triton(text, metadata) if metadata.is_file() else _cute(text)


def _cute(text: Path) -> Artefact:
    """The artefact of a PTX file of CuTe DSL, with the facts of the .mlir file beside it if there is one."""
    names = _ENTRY.findall(text.read_text(encoding="utf-8", errors="replace"))
    for file in sorted(text.parent.glob("*.mlir")):
        lowered = file.read_text(encoding="utf-8", errors="replace")
        for name in names:
            found = re.search(rf"cuda\.kernel @{re.escape(name)}\((.*?)\) attributes \{{(.*)", lowered)
            if found and len(names) == 1:
                return _of_cute(text, name, found.group(1), found.group(2), dict(_ALIAS.findall(lowered)))
    return Artefact(text)


def _of_cute(text: Path, name: str, arguments: str, attributes: str, aliases: dict[str, str]) -> Artefact:
    facts = {
        key: tuple(map(int, numbers.split(",")))
        for key, numbers in re.findall(r"exact_(\w+)_dim = array<i64: ([\d, ]+)>", attributes)
    }
    arrays = []
    for number, kind in enumerate(re.findall(r"%\w+: (![\w.]+|\w+)", arguments)):
        memory = _MEMORY.match(aliases.get(kind, kind))
        if memory and memory.group(1) in _TYPES:
            sizes = re.findall(r"\d+|\?", memory.group(2))
            count = 0 if "?" in sizes else prod(map(int, sizes))
            arrays.append((number, _TYPES[memory.group(1)], count))
    return Artefact(
        text,
        name,
        prod(facts.get("block", (0,))),
        cluster=facts.get("cluster", ()),
        grid=facts.get("grid", ()),
        arrays=tuple(arrays),
    )


def skeleton(described: LaunchFile, kernel: Kernel) -> str:
    """A launch file to fill in, with everything that is known of the launch."""
    lines = [f'kernel = "{kernel.name}"', f"grid = {list(described.grid or (1,))}"]
    lines.append(f"block = {list(described.block or kernel.reqntid or (32,))}")
    cluster = described.cluster or kernel.cluster
    lines += [f"cluster = {list(cluster)}"] if cluster else []
    known = described.shared_bytes is not None
    lines.append(
        f"{'' if known else '# '}shared_bytes = {described.shared_bytes or 0}   # dynamic shared memory of a block"
    )
    tables = {int(key): table for key, table in described.args.items() if str(key).isdecimal()}
    named = {key: table for key, table in described.args.items() if not str(key).isdecimal()}
    for number, parameter in enumerate(kernel.params):
        lines += ["", f"[args.{number}]   # {parameter.name}: {parameter.size} bytes"]
        table = named.get(parameter.name, tables.get(number))
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()] if table else _asked(parameter)
    return "\n".join(lines) + "\n"


def _asked(parameter: Parameter) -> list[str]:
    """Example lines for a parameter of which nothing is known."""
    if parameter.size == TENSOR_MAP_BYTES:
        fill = 'array = "x", dims = [64, 64], strides = [128], box = [64, 64], swizzle = "128B"'
        return [f"tensor_map = {{ {fill} }}   # and [arrays.x] with dtype and shape"]
    if parameter.size > POINTER_BYTES:
        return [f'bytes = "{"00" * parameter.size}"   # its bytes in hexadecimal digits']
    if parameter.size == POINTER_BYTES:
        return ['dtype = "f32"   # where it is a pointer; else value = 0', "shape = [1024]"]
    return ["value = 1.0" if parameter.type.startswith("f") else "value = 1"]


def _folder(path: Path) -> Artefact:
    texts = sorted(path.glob("*.ptx"))
    if len(texts) != 1:
        names = ", ".join(text.name for text in texts) or "none"
        below = sorted(str(text.relative_to(path)) for text in path.glob("*/*.ptx"))
        where = (
            f"; below it: {', '.join(below[:MAX_FILES_LISTED])}{', ...' if len(below) > MAX_FILES_LISTED else ''}"
            if below
            else ""
        )
        raise BenchError(f"{path} holds {len(texts)} PTX files ({names}){where}: name the one to launch")
    return read_artefact(texts[0])


def _triton(text: Path, metadata: Path) -> Artefact:
    try:
        table = json.loads(metadata.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BenchError(f"{metadata}: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get("num_warps"), int):
        raise BenchError(f"{metadata} is no metadata of Triton: it says no num_warps")
    scratch = [table[key] for key in ("global_scratch_size", "profile_scratch_size") if isinstance(table.get(key), int)]
    ctas, lowered = table.get("num_ctas", 1), _lowered(text.with_suffix(".ttir"))
    return Artefact(
        text,
        str(table.get("name", "")),
        table["num_warps"] * table.get("warp_size", WARP),
        shared if isinstance(shared := table.get("shared"), int) else None,
        (ctas,) if isinstance(ctas, int) and ctas > 1 else (),
        tuple(scratch),
        _arguments(lowered),
        compiler=_compiler(lowered, table.get("triton_version")),
    )


def _lowered(file: Path) -> str:
    """The text of Triton's .ttir file; empty if there is none, as for Gluon."""
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _compiler(lowered: str, version: object) -> Compiler | None:
    """The compiler that alone can cause some faults: not where programs write assembly, or fences as in Gluon."""
    known = isinstance(version, str) and lowered and "inline_asm" not in lowered
    return triton(str(version)) if known else None


def _arguments(lowered: str) -> tuple[tuple[str, str], ...]:
    """Names and types of the kernel's arguments in Triton's own form; empty if it is not known."""
    found = _FUNCTION.search(lowered)
    return tuple(_ARGUMENT.findall(found.group(1))) if found else ()
