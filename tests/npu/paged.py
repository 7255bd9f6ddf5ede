"""Paged attention problems for tests, and kernels with one thing changed."""

import linecache
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np

from kernbench import npu
from kernbench.benches.paged_forms import fused, grouped, staged, stream, vector
from kernbench.benches.paged_forms.shape import Shape
from kernbench.golden.paged_attention import paged_attention_rounded

FORMS = {"staged": staged, "fused": fused, "grouped": grouped}
SHARED = {"stream": stream, "vector": vector}
REFERENCE = ([33], [128], [33, 17], [33, 64, 48, 15])
BF16 = ml_dtypes.bfloat16


def problem(lens, H=16, kv=1, D=16, page=16, tile=16, seed=0, spare=3, scores="f32"):
    """Arguments of the orchestrations: pages in random order, NaN in those that no sequence uses."""
    rng = np.random.default_rng(seed)
    B, pages = len(lens), max(1, *(-(-n // page) for n in lens))
    blocks = B * pages + spare
    query = rng.standard_normal((B, H, D)).astype(BF16)
    keys, values = (rng.standard_normal((blocks, page, kv, D)).astype(BF16) for _ in range(2))
    table = rng.permutation(blocks)[: B * pages].reshape(B, pages).astype(np.int32)
    unused = sorted(set(range(blocks)) - set(table.reshape(-1).tolist()))
    keys[unused] = values[unused] = np.nan
    for b, n in enumerate(lens):
        if n % page:
            keys[table[b, n // page], n % page :] = values[table[b, n // page], n % page :] = np.nan
    out = np.full((B, H, D), np.nan, np.float32)
    shape = Shape(B, H, kv, D, page, pages, tile, 1 / D**0.5, scores)
    return query, keys, values, table, np.array(lens, np.int32), out, shape


def expected(arguments, form="fused"):
    """The golden with S rounded to its type, and P against the maximum of as many keys as the form takes at a time."""
    shape = arguments[6]
    many = grouped.group_size(shape) if form == "grouped" else 1
    return paged_attention_rounded(*arguments[:5], step=shape.step, together=many, scores=shape.scores)


def launch(form, arguments, chip="a2a3", **options):
    module = FORMS[form] if isinstance(form, str) else form
    return npu.Chip(chip).launch(module.orchestrate, *arguments, **options)


def changed(module, line: int, text: str) -> types.ModuleType:
    """The kernels of a module with one line replaced."""
    lines = Path(module.__file__).read_text().splitlines(keepends=True)
    indent = re.match(r"\s*", lines[line - 1]).group()
    lines[line - 1] = f"{indent}{text}\n"
    return _loaded(f"{module.__name__}_line_{line}", "".join(lines))


def _loaded(name: str, source: str) -> types.ModuleType:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    # dataclasses look their module up
    mutant = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), mutant.__dict__)
    return mutant


def built_on(form, shared, mutant) -> types.ModuleType:
    """The kernels of a form over a changed shared module; other shared modules that use it are loaded again too."""
    with mock.patch.dict(sys.modules, {shared.__name__: mutant}):
        for other in SHARED.values():
            if other is not shared and f"{shared.__name__} import" in Path(other.__file__).read_text():
                sys.modules[other.__name__] = _loaded(f"{other.__name__}_again", Path(other.__file__).read_text())
        return _loaded(f"{form.__name__}_again", Path(form.__file__).read_text())


def order_lines(module) -> Iterator[tuple[int, str]]:
    """Every line that sets or waits for a flag or is a barrier."""
    for number, text in enumerate(Path(module.__file__).read_text().splitlines(), 1):
        if re.search(r"\.(set_flag|wait_flag|pipe_barrier|barrier|settle)\(", text):
            yield number, text.strip()
