"""Warpgroup matrix instructions: issue, fence, commit, wait."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Form
from kernbench.ptx.emulator.instructions.matrix.matrix import whole_warps
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep, Step, action, nothing
from kernbench.ptx.emulator.units.batch import Fragment, Scheduler, Window
from kernbench.ptx.numerics.matrix.layout import dimensions


def multiply(d: Decoding) -> Step:
    """wgmma.mma_async."""
    targets, site = d.targets(0), d.site
    registers = [d.register_slot(slot) for slot in d.sources(1)] if d.resolved.rules[1].name == "a" else []
    form = _form(d, targets, registers)
    a, b = (None if registers else d.source(1)), d.source(2)
    scale = d.position("scale_d")
    assert scale is not None
    adds, meta = d.source(scale), d.position("meta")
    if meta is None and not form.saturates:
        d.row = _row(d, form, (*(registers or [d.source(1)]), b), adds, targets)
    words = None if meta is None else d.row_slot(d.source(meta))
    d.flops = 2 * 64 * form.n * form.k // (4 * WARP)

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        rows, (chosen, warps) = window.rows, window.leaders(mask)
        left = None if a is None else pick(rows[a], chosen)
        metadata = None if words is None else rows[words].reshape(-1, WARP)[chosen // WARP]
        window.batch.warpgroups.issue(form, warps, left, pick(rows[b], chosen), pick(rows[adds], chosen), metadata)
        window.batch.checks.definedness.follow(site)

    return action(general)


def _row(d: Decoding, form: Form, factors: tuple[int, ...], adds: int, targets: list[int]) -> Row:
    """A and B, whether D is added unless that is known, and D."""
    scale = d.position("scale_d")
    assert scale is not None
    known = d.constant_of(scale)
    added = (adds,) if known is None else ()
    how = 2 if known is None else int(known != 0)
    constants = (form.n, int(form.a_rows is not None), *map(int, form.transposed), int(form.negated), how)
    return Row("group product", (*factors, *added, *targets), constants)


def _form(d: Decoding, targets: list[int], registers: list[int]) -> Form:
    _, n, k = dimensions(d.mod("shape"))
    d_rows = d.bank_rows(targets)[1]
    scale = d.position("scale_d")
    assert scale is not None
    # with a scale of zero D is not read
    if d.constant_of(scale) != 0:
        d.sources(0)
    a_rows = d.bank_rows(registers)[1] if registers else None
    signs = [_immediate(d, name, 1) for name in ("scale_a", "scale_b")]
    return Form(
        n,
        k,
        (d.mod("dtype"), d.mod("atype"), d.mod("btype")),
        np.array(d_rows, np.int64),
        None if a_rows is None else np.array(a_rows, np.int64),
        (_immediate(d, "trans_a", 0) == 1, _immediate(d, "trans_b", 0) == 1),
        signs[0] * signs[1] < 0,
        d.has("satfinite"),
        d.site,
        None if d.position("meta") is None else _immediate(d, "selector", 0),
    )


def _immediate(d: Decoding, name: str, default: int) -> int:
    index = d.position(name)
    if index is None:
        return default
    value = d.constant_of(index)
    return default if value is None else value - (1 << 32) if value >> 31 == 1 else value


def leaders(window: Window, mask: Mask | None) -> Array:
    """The position of the first active lane of each warp that has one."""
    return window.leaders(mask)[0]


def pick(row: Any, chosen: Array) -> Array:
    """The values of a row, or of a constant, at some positions."""
    found: Array = row[chosen] if row.ndim else np.full(len(chosen), row)
    return found


def fence(d: Decoding) -> Step:
    """wgmma.fence: steps of the analysis track what it orders."""
    d.row = Row("nothing")
    return nothing()


def commit(d: Decoding) -> Step:
    """wgmma.commit_group."""
    d.row = Row("commit products")

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.warpgroups.commit(window.leaders(mask)[1])

    return action(general)


def wait(d: Decoding) -> ControlStep:
    """wgmma.wait_group."""
    keep, following, site = d.constant_of(0) or 0, d.following, d.site
    d.report = Report(site, d.effects.event, keep=keep)
    d.row = Row("wait for products", (), (keep,))

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        return scheduler.batch.warpgroups.wait(fragment, keep, following, site)

    return ControlStep(run)


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "wgmma": multiply,
    "wgmma.fence": fence,
    "wgmma.commit": commit,
    "wgmma.wait": wait,
}
