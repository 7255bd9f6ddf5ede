"""The golden's verdict on the outputs of a run, computed during the launch if there is a free core."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import prod
from typing import Any, TypedDict
from zlib import crc32

import numpy as np

from kernbench import golden
from kernbench.bench.definition.bench import Bench, Expected
from kernbench.common.dtypes import DTYPES
from kernbench.common.errors import BenchError
from kernbench.golden.basis.threads import threads
from kernbench.golden.compare import limits_ahead
from kernbench.golden.limits import Limits
from kernbench.result.comparison import Comparison
from kernbench.result.run import Run
from kernbench.safety.jobs import wanted_jobs
from kernbench.safety.processes.copies import Copies
from kernbench.safety.processes.outside import Outside
from kernbench.safety.processes.threads import together
from kernbench.safety.processes.workers import can_fork
from kernbench.targets import registry

# bytes of inputs from which the golden runs in another process, and elements of an output from which its limits are
# computed in advance
WORTH = 1 << 20
# bytes of inputs that a thread processes
_PART = 1 << 24


class _How(TypedDict):
    """How an output is compared."""

    compute_dtype: str | None
    rank_axis: int | None
    ranks: int | None
    allowed: tuple[float, float] | None
    reduction: int | None


def judge(
    bench: Bench,
    run: Run,
    p: object,
    inputs: Mapping[str, object],
    ahead: "Ahead | None" = None,
    meanwhile: Callable[[Run], None] | None = None,
) -> list[Comparison]:
    """The golden's verdict on each output of a run; `ahead` may have it already. `meanwhile` is called with the run
    while another process compares.
    """
    found = None if ahead is None else ahead.verdicts(run, inputs, meanwhile)
    if found is not None:
        return found
    with _one_thread():
        return _compare(bench, run, _wanted(bench, p, inputs))


def _one_thread() -> AbstractContextManager[object]:
    """One thread of the matrix library, independent of the number of processes, so that sums have the same order."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limited: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limited


def _wanted(bench: Bench, p: object, inputs: Mapping[str, object]) -> Mapping[str, object]:
    """The golden's expectation of each output."""
    wanted = bench.golden(p, inputs)
    if not isinstance(wanted, Mapping):
        raise BenchError(f"bench {bench.name}: golden must return output name -> Expected; got {type(wanted).__name__}")
    return wanted


class Ahead:
    """The golden's result, which a forked copy of this process computes during the launch, on another core.

    The copy compares outputs, too, once they are sent to it. If it fails, or has any effect besides its result,
    the work is repeated here, and any error appears here.
    """

    def __init__(self, bench: Bench, p: object, inputs: Mapping[str, object]):
        self._copies = Copies()
        self._copies.make(1)
        if self._copies.number is not None:
            self._work(bench, p, inputs)

    def _work(self, bench: Bench, p: object, inputs: Mapping[str, object]) -> None:
        """In the copy: it never returns."""
        try:
            outside = Outside()
            outside.add([bench.golden])
            with _one_thread(), threads(wanted_jobs(None)):
                before = _digest(inputs)
                wanted = _wanted(bench, p, inputs)
                limits = _limits(wanted, inputs)
                run = self._copies.heard()
                assert isinstance(run, Run)
                verdicts = _compare(bench, run, wanted, limits)
            answer = None if outside.changed() else (verdicts, list(wanted), before)
            self._copies.answer(answer)
        except BaseException:  # raised again in the parent
            self._copies.refuse()

    def verdicts(
        self, run: Run, inputs: Mapping[str, object], meanwhile: Callable[[Run], None] | None
    ) -> list[Comparison] | None:
        """The verdict on each output of the run; None if it has to be computed here."""
        launches = [Run(one.outputs, [], (), one.status) for one in run.launches]
        asked = Run(run.outputs, [], (), run.status, launches=launches)
        found = None
        if self._copies.send(asked):
            now = _digest(inputs)
            if meanwhile is not None:
                meanwhile(run)
            found = self._copies.answers(lambda: None)
        self.drop()
        if not found or not isinstance(found[0], tuple):
            return None
        verdicts, names, before = found[0]
        if before != now:
            # the launch wrote into them: the golden is called with their current values
            return None
        _take_outputs(run, names)
        return list(verdicts)

    def drop(self) -> None:
        """The result is not needed any more."""
        self._copies.close()


@contextmanager
def worked_ahead(bench: Bench, p: object, inputs: Mapping[str, object], is_asked: bool) -> Iterator[Ahead | None]:
    """Run the golden on another core, if there is one, it `is_asked` at all, and the work is worth it."""
    sizes = [_bytes(value) for value in inputs.values()]
    known = None not in sizes and sum(size or 0 for size in sizes) >= WORTH
    ahead = Ahead(bench, p, inputs) if is_asked and known and wanted_jobs(None) > 1 and can_fork() else None
    try:
        yield ahead
    finally:
        if ahead is not None:
            ahead.drop()


def _bytes(value: object) -> int | None:
    """The bytes of an input; None if it may change unnoticed."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value.nbytes
    return 0 if value is None or isinstance(value, (int, float, str, bytes)) else None


def _digest(inputs: Mapping[str, object]) -> list[int]:
    """A digest of the inputs, to be compared later."""
    arrays = [np.ascontiguousarray(value) for value in inputs.values() if isinstance(value, np.ndarray)]
    plain = [array.reshape(-1).view(np.uint8).data for array in arrays]
    parts = [data[start : start + _PART] for data in plain for start in range(0, len(data), _PART)]
    found = [0] * len(parts)

    def work(number: int) -> None:
        found[number] = crc32(parts[number])

    together(partial(work, number) for number in range(len(parts)))
    return found


def _take_outputs(run: Run, wanted: Collection[str]) -> None:
    """Add outputs of launches before the last one to the run if the golden names them."""
    for launch in run.launches:
        run.outputs |= {n: array for n, array in launch.outputs.items() if n in wanted and n not in run.outputs}


def _limits(wanted: Mapping[str, object], inputs: Mapping[str, object]) -> dict[str, Limits]:
    """Limits of large outputs, computed in advance, if the outputs have the type of all inputs."""
    types = {value.dtype for value in inputs.values() if isinstance(value, np.ndarray)}
    floats = [one for one in DTYPES.values() if one.kind == "float" and one.numpy in types]
    if len(floats) != 1:
        return {}
    found = {}
    for name, expected in wanted.items():
        known = expected if isinstance(expected, Expected) else Expected(expected)
        if getattr(known.reference, "shape", None) and prod(known.reference.shape) >= WORTH:
            found[name] = limits_ahead(known.reference, name=name, dtype=floats[0].name, **_how(known))
    return found


def _how(expected: Expected) -> "_How":
    """How an output is compared."""
    return {
        "compute_dtype": expected.compute_dtype,
        "rank_axis": expected.rank_axis,
        "ranks": expected.ranks,
        "allowed": expected.allowed,
        "reduction": expected.reduction,
    }


def _compare(
    bench: Bench, run: Run, wanted: Mapping[str, object], limits: Mapping[str, Limits] | None = None
) -> list[Comparison]:
    verdicts = []
    unjudged = sorted(set(run.outputs) - set(wanted))
    if unjudged:
        raise BenchError(
            f"bench {bench.name}: golden says nothing of output {', '.join(map(repr, unjudged))}, only of "
            f"{', '.join(map(repr, sorted(wanted))) or 'none'}; name every output, and make what nobody looks at with "
            "torch.workspace"
        )
    _take_outputs(run, wanted)
    for name, expected in wanted.items():
        if name not in run.outputs:
            raise BenchError(f"bench {bench.name}: golden names output {name!r}; the launch gave {_given(run)}")
        verdicts.append(_verdict(name, run.outputs[name], expected, (limits or {}).get(name)))
    return verdicts


def _given(run: Run) -> str:
    """The outputs of a run, in words."""
    if run.outputs:
        return str(sorted(run.outputs))
    return (
        f"none: outputs are {registry.of_run(run).outputs_are}; a launch that carries no data on purpose has a host "
        "with shapes_only"
    )


def _verdict(name: str, output: Any, expected: object, limits: Limits | None = None) -> Comparison:
    if not isinstance(expected, Expected):
        return golden.compare(output, limits or expected, name=name)
    if not hasattr(expected.reference, "shape"):
        raise BenchError(
            f"golden of {name!r}: a Reference or an array is wanted; got {type(expected.reference).__name__}"
        )
    shape = expected.reference.shape
    if output.size == int(np.prod(shape)):
        output = output.reshape(shape)
    return golden.compare(output, limits or expected.reference, name=name, **_how(expected))
