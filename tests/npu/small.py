"""One kernel on one core: the shortest way from arrays to a Run."""

from kernbench import npu


def run_kernel(kernel, *arrays, out=None, lane="aiv0", chip="a2a3", blocks=1, **options):
    """Run `kernel(core, *arrays, out)` as one task: arrays IN, `out` OUT."""

    def orchestrate(rt, *tensors):
        given = [npu.IN(t) for t in tensors[: len(arrays)]] + [npu.OUT(t) for t in tensors[len(arrays) :]]
        rt.submit(**{lane: kernel}, args=given, block_num=blocks)

    def named(rt, a=None, b=None, c=None, out=None):
        tensors = (a, b, c)[: len(arrays)]
        orchestrate(rt, *tensors, *([out] if out is not None else []))

    keywords = dict(zip("abc", arrays, strict=False))
    if out is not None:
        keywords["out"] = out
    return npu.Chip(chip).launch(named, **options, **keywords)


def kinds(run):
    return sorted({f.kind for f in run.findings})


def flag(core, source, target, event=0):
    core.set_flag(source, target, event)
    core.wait_flag(source, target, event)


def line_of(kernel, text):
    """The number of the line of a kernel that holds `text`."""
    import inspect

    lines, first = inspect.getsourcelines(kernel)
    (found,) = [first + i for i, line in enumerate(lines) if text in line]
    return found
