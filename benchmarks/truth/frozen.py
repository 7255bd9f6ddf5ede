"""Launches of kernbench's own kernels as they were measured: PTX, tables and tensor maps in files of `ptx/ours/`.

`python -m benchmarks.truth.frozen SET` writes those of a set from the kernels of today; a point is predicted with what
is in its file, whatever becomes of the kernels since then.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kernbench.ptx.text.printer import module_text

from .problems import FOLDER, Array, Input

FROZEN = FOLDER / "ours"
TYPES: dict[str, Any] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
}
_NAMES = {kind: name for name, kind in TYPES.items()}


@dataclass(frozen=True)
class Launch:
    """A launch of a file: arrays by name, arguments in order, bytes that must be moved, and what is written."""

    file: str
    entry: str
    grid: tuple[int, ...]
    block: int
    shared: int
    arrays: dict[str, dict[str, Any]]
    arguments: list[dict[str, Any]]
    moved: int
    flops: int
    out: str

    @property
    def text(self) -> str:
        """The PTX."""
        return (FROZEN / f"{self.file}.ptx").read_text(encoding="utf-8")

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(int(np.prod(one["shape"])) * TYPES[one["dtype"]].itemsize for one in self.arrays.values())

    def made(self, device: Any) -> tuple[list[Any], Any]:
        """The arguments on a device, and the array that is written."""
        rng = np.random.default_rng(0)
        there = {name: device.array(contents(one, rng), name) for name, one in self.arrays.items()}
        given: list[Any] = []
        for one in self.arguments:
            if "map" in one:
                sizes = (tuple(one[key]) for key in ("dims", "strides", "box"))
                given.append(device.tensor_map(there[one["map"]], *sizes, one["swizzle"]))
            else:
                given.append(there[one["pointer"]] if "pointer" in one else one["number"])
        return given, there[self.out]


def contents(about: dict[str, Any], rng: np.random.Generator) -> Array:
    """An array: the numbers of a table, zeros, or numbers that look random, times something."""
    shape, kind = tuple(about["shape"]), TYPES[about["dtype"]]
    if "values" in about:
        return np.array(about["values"], kind).reshape(shape)
    if about.get("zeros"):
        return np.zeros(shape, kind)
    drawn: Array = Input(shape).made(rng) * about.get("times", 1.0) + about.get("plus", 0.0)
    cast: Array = drawn.astype(kind)
    return cast


def launch(name: str) -> Launch:
    """The launch of a point."""
    found = json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))
    return Launch(**{**found, "grid": tuple(found["grid"])})


class Recorder:
    """Takes the place of a device: keeps what arrays and maps a launch is given."""

    def __init__(self) -> None:
        self.arrays: dict[str, dict[str, Any]] = {}

    def array(self, value: Any, name: str = "") -> Any:
        """A table, or memory that begins with zeros."""
        table = value if isinstance(value, np.ndarray) else np.asarray(value)
        about: dict[str, Any] = {"shape": list(table.shape), "dtype": _NAMES[table.dtype]}
        about |= {"values": table.reshape(-1).tolist()} if table.any() else {"zeros": True}
        self.arrays[name] = about
        return _Given(name, tuple(table.shape), table.dtype)

    def drawn(self, name: str, shape: tuple[int, ...], dtype: str = "bf16", **how: float) -> Any:
        """An array of numbers that look random."""
        self.arrays[name] = {"shape": list(shape), "dtype": dtype, **how}
        return _Given(name, shape, TYPES[dtype])

    def tensor_map(self, array: Any, dims: Any, strides: Any, box: Any, swizzle: str = "none") -> Any:
        """A map of an array."""
        sizes = {"dims": list(dims), "strides": list(strides), "box": list(box)}
        return {"map": array.name, **sizes, "swizzle": swizzle}

    def write(self, point: str, file: str, kernel: Any, grid: Any, given: list[Any], **more: Any) -> None:
        """The files of a launch."""
        built = kernel.build(lines=False)
        shared = getattr(kernel, "shared_bytes", 0)
        whole = (grid,) if isinstance(grid, int) else tuple(grid)
        arguments = [
            one if isinstance(one, dict) else {"pointer": one.name} if isinstance(one, _Given) else {"number": one}
            for one in given
        ]
        text = module_text(built.module)
        about = Launch(file, built.name, whole, kernel.threads, shared, self.arrays, arguments, **more)
        FROZEN.mkdir(exist_ok=True)
        (FROZEN / f"{file}.ptx").write_text(text.rstrip() + "\n", encoding="utf-8")
        (FROZEN / f"{point}.json").write_text(json.dumps(about.__dict__) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Given:
    name: str
    shape: tuple[int, ...]
    dtype: Any


SMS = 132


def _decode(batch: int, keys: int, page: int = 0, edition: str = "") -> str:
    from kernbench.kernels.decode import DecodeKernel, DecodePlan, DecodeShape, DenseCache, PagedCache, arguments

    shape = DecodeShape(64, 8, 128, "bf16", PagedCache(page) if page else DenseCache())
    plan, made = DecodePlan.of(shape, [keys] * batch, SMS), Recorder()
    rows = (batch * keys // page, page, 8, 128) if page else (batch * keys, 8, 128)
    q, k, v = made.drawn("q", (batch, 64, 128)), made.drawn("k", rows), made.drawn("v", rows)
    out = made.drawn("out", (batch, 64, 128), times=0.0)
    table = None
    if page:
        order = np.random.default_rng(0).permutation(batch * keys // page).astype(np.int32)
        table = made.array(order.reshape(batch, -1), "table")
    given = arguments(made, plan, q, k, v, out, table=table)
    name = f"decode-sm90-{batch}x{keys}" + (f"-page{page}" if page else "")
    moved = 4 * batch * keys * 8 * 128
    file = f"decode_sm90_{'paged' if page else 'dense'}{edition}"
    made.write(name, file, DecodeKernel(shape), plan.ctas, given, moved=moved, flops=8 * 2 * moved, out="out")
    return name


def _prefill(batch: int, length: int, heads: int, causal: bool, edition: str = "") -> str:
    from kernbench.kernels.prefill import PrefillKernel, PrefillPlan, PrefillShape, arguments

    shape = PrefillShape(heads, heads // 4, 128, "bf16", causal)
    plan, made = PrefillPlan.of(shape, [length] * batch, sms=SMS), Recorder()
    tokens = batch * length
    q, out = made.drawn("q", (tokens, heads, 128)), made.drawn("out", (tokens, heads, 128), times=0.0)
    k, v = (made.drawn(name, (tokens, heads // 4, 128)) for name in ("k", "v"))
    given = arguments(made, plan, q, k, v, out)
    kind = "causal" if causal else "full"
    name = f"prefill-{batch}x{length}-h{heads}-{kind}"
    moved = 2 * tokens * 128 * (2 * heads + 2 * heads // 4)
    more = {"moved": moved, "flops": int(plan.flops), "out": "out"}
    made.write(name, f"prefill_h{heads}_{kind}{edition}", PrefillKernel(shape), plan.ctas, given, **more)
    return name


def _delta_rule(length: int, heads: int, which: str, edition: str = "") -> str:
    from kernbench.kernels.gated_delta_rule import ForwardPlan, ForwardShape
    from kernbench.kernels.gated_delta_rule.arguments import ForwardPass

    shape = ForwardShape(heads, heads, 128, 128, "bf16")
    plan, made = ForwardPlan.of(shape, [length]), Recorder()
    around = ForwardPass(made, plan, {"f32": np.float32, "bf16": TYPES["bf16"]})
    arrays = {name: made.drawn(name, (length, heads, 128), times=0.08) for name in ("q", "k", "v", "out")}
    arrays["g"] = made.drawn("g", (length, heads), "f32", times=0.001, plus=-0.05)
    arrays["beta"] = made.drawn("beta", (length, heads), "f32", times=0.0, plus=0.5)
    begun = around.arguments(arrays)
    one, given = begun[0] if which == "inverse" else begun[-1]
    moved = 2 * length * heads * (128 + 64) if which == "inverse" else 2 * length * heads * (4 * 128 + 64)
    flops = 2 * length * heads * 64 * (128 + 64)
    name = f"delta-rule-{which}-t{length}-h{heads}"
    out = "inverses" if which == "inverse" else "out"
    file = f"delta_rule_{which}_h{heads}{edition}"
    made.write(name, file, one.kernel, one.grid, given, moved=moved, flops=flops, out=out)
    return name


def _step(sequences: int, heads: int) -> str:
    from kernbench.kernels.gated_delta_rule import StepKernel, StepShape, step_arguments

    shape, made = StepShape(heads, heads), Recorder()
    kernel = StepKernel.fitting(shape, sequences, SMS)
    drawn = {name: made.drawn(name, (sequences, heads, 128), times=0.08) for name in ("q", "k", "v", "out")}
    g = made.drawn("g", (sequences, heads), "f32", times=0.001, plus=-0.05)
    beta = made.drawn("beta", (sequences, heads), "f32", times=0.0, plus=0.5)
    states = made.drawn("states", (sequences, heads, 128, 128), "f32", times=0.1)
    slots = made.array(np.random.default_rng(0).permutation(sequences).astype(np.int32), "slots")
    given = step_arguments(shape, drawn["q"], drawn["k"], drawn["v"], g, beta, states, slots, drawn["out"])
    name, moved = f"delta-rule-step-{sequences}-h{heads}", 8 * sequences * heads * 128 * 128
    file = f"delta_rule_step_h{heads}_{sequences}"
    made.write(name, file, kernel, kernel.grid(sequences), given, moved=moved, flops=moved, out="out")
    return name


def _append(tokens: int) -> str:
    from kernbench.kernels.append import AppendKernel, AppendShape, arguments
    from kernbench.kernels.caches import PagedCache

    shape, made = AppendShape(8, 128, "bf16", PagedCache(16)), Recorder()
    pages, kernel = tokens, AppendKernel(shape)
    k_new, v_new = (made.drawn(name, (tokens, 8, 128)) for name in ("k_new", "v_new"))
    k, v = (made.drawn(name, (pages, 16, 8, 128), times=0.0) for name in ("k", "v"))
    slots = np.random.default_rng(0).permutation(tokens * 16)[:tokens].astype(np.int64)
    given = arguments(shape, k_new, v_new, k, v, made.array(slots, "slots"))
    name, moved = f"append-{tokens}", 2 * 2 * 2 * tokens * 8 * 128
    made.write(name, "append", kernel, kernel.ctas(tokens), given, moved=moved, flops=tokens * 1024, out="k")
    return name


def fourth() -> Iterator[str]:
    """Launches of the fourth set, as the kernels are today: not as they were."""
    for batch, keys, page in ((4, 2048, 0), (32, 1024, 0), (16, 4096, 0), (8, 2048, 16), (64, 1024, 16)):
        yield _decode(batch, keys, page)
    for batch, length, heads, causal in ((1, 1024, 16, True), (1, 2048, 16, True), (2, 1024, 16, False)):
        yield _prefill(batch, length, heads, causal)
    for length, which in ((1024, "inverse"), (8192, "inverse"), (2048, "forward"), (4096, "forward")):
        yield _delta_rule(length, 16, which)
    for tokens in (512, 4096):
        yield _append(tokens)


def fifth() -> Iterator[str]:
    """Launches of the fifth set: kernels have changed since the fourth, their files have names of their own."""
    yield _decode(8, 4096, edition="_fifth")
    yield _decode(32, 2048, 16, "_fifth")
    yield _prefill(4, 512, 16, True, "_fifth")
    yield _prefill(1, 1536, 16, False, "_fifth")
    yield _delta_rule(4096, 16, "inverse", "_fifth")
    yield _delta_rule(1024, 32, "forward", "_fifth")
    yield from (_step(sequences, 16) for sequences in (16, 64))
    yield _append(1024)


def sixth() -> Iterator[str]:
    """Launches of the sixth set: kernels are those of the fifth, at other shapes."""
    yield _decode(16, 2048, edition="_fifth")
    yield _decode(64, 512, 16, "_fifth")
    yield _prefill(2, 2048, 16, True, "_fifth")
    yield _delta_rule(2048, 32, "forward", "_fifth")
    yield _step(32, 16)


SETS = {"fourth": fourth, "fifth": fifth, "sixth": sixth}


if __name__ == "__main__":
    for made_now in SETS[sys.argv[1]]():
        sys.stdout.write(f"{made_now}\n")
