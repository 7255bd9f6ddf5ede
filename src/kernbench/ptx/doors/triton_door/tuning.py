"""Autotuning without measurements.

Take the first configuration that fits or the shortest predicted time, or run all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.identity import KernelIdentity
from kernbench.ptx.doors.options import LEFT_OUT
from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.predicting import Predictions, gpu_that_runs
from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.triton_door.compiling import identity_of

if TYPE_CHECKING:
    from kernbench.ptx.machine.model import Gpu

# a time in milliseconds longer than that of any kernel
_UNTIMED = 1e9


class Dry:
    """Dry-run mode: kernels are compiled and loaded, but not run."""

    on = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Inside, launches are not run."""
        before, self.on = self.on, True
        try:
            yield
        finally:
            self.on = before


def once(
    function: Callable[[], object],
    *args: object,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **kwargs: object,
) -> list[float] | float:
    """A benchmark for Triton's autotuner: run a function once, and return 1 ms, which is not used."""
    function()
    return _given(1.0, quantiles, return_mode)


def _given(milliseconds: float, quantiles: Sequence[float] | None, return_mode: str) -> list[float] | float:
    """A time in the format of `do_bench`."""
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds


class Tuning:
    """How autotuners choose during one session."""

    def __init__(self, session: Session, dry: Dry):
        self._session, self._dry = session, dry
        # by running autotuner: the predicted seconds of the configurations that fit so far
        self._fitting: dict[int, list[float | None]] = {}
        # by running autotuner: how many of those were run
        self._ran: dict[int, int] = {}

    def install(self, patches: Patches) -> None:
        """Replace the benchmarks of Triton's autotuner."""
        import triton.testing
        from triton.runtime.autotuner import Autotuner

        run, bench, tuning = Autotuner.run, Autotuner._bench, self

        def chosen_run(tuner: Any, *args: object, **kwargs: object) -> object:
            tuning._forget(tuner)
            known, earlier = len(tuner.cache), len(tuning._session.launches)
            try:
                return run(tuner, *args, **kwargs)
            finally:
                tuning._report(tuner, known, earlier)
                tuning._forget(tuner)

        def chosen_bench(tuner: Any, *args: object, config: object, **meta: object) -> object:
            return tuning._look(tuner, bench, args, config, meta)

        patches.set(Autotuner, "run", chosen_run)
        patches.set(Autotuner, "_bench", chosen_bench)
        patches.set_if_there(Autotuner, "check_disk_cache", _without_disk)
        patches.set(triton.testing, "do_bench", self._benchmark)
        patches.set_if_there(triton.testing, "do_bench_cudagraph", self._benchmark)

    def _benchmark(
        self,
        function: Callable[[], object],
        *args: object,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **kwargs: object,
    ) -> list[float] | float:
        """`triton.testing.do_bench`: run a function once.

        There is no GPU to time. If launches are predicted (`--time`), the result is the prediction for the launches of
        the function, if all have one. Otherwise it is a placeholder of 1 ms, and the verdict says so.
        """
        earlier = len(self._session.launches)
        function()
        predicted = self._session.time_since(earlier)
        return _given(1.0 if predicted is None else 1e-9 * predicted, quantiles, return_mode)

    def _look(self, tuner: Any, bench: Any, args: Any, config: Any, meta: Any) -> list[float]:
        """The time reported for a configuration: by default the first that fits is the fastest."""
        fitting = self._fitting.setdefault(id(tuner), [])
        if fitting and not self._session.options.all_configs and self._gpu is None:
            return [inf, inf, inf]
        # an autotuner may have been created with a benchmark of its own
        tuner.__dict__["do_bench"] = once
        earlier = len(self._session.launches)
        with self._treated() as predictions:
            times = bench(tuner, *args, config=config, **meta)
        if not isinstance(times, list) or times[0] == inf:
            return [inf, inf, inf]
        seconds = None if predictions is None else predictions.total
        fitting.append(seconds)
        self._ran[id(tuner)] = self._ran.get(id(tuner), 0) + self._ran_since(earlier)
        # milliseconds; configurations without a time come last, in order
        return [1e3 * seconds if seconds is not None else _UNTIMED + len(fitting)] * 3

    @contextmanager
    def _treated(self) -> Iterator[Predictions | None]:
        """How launches of a candidate configuration are treated: run, timed, or dry."""
        if self._gpu is not None:
            with self._session.predicting(self._gpu) as predictions:
                yield predictions
        elif self._session.options.all_configs:
            yield None
        else:
            with self._dry.during():
                yield None

    @property
    def _gpu(self) -> "Gpu | None":
        """The GPU for which configurations are timed, if requested and available."""
        options = self._session.options
        wanted = options.best_config and not options.all_configs
        return gpu_that_runs(self._session.arch, options.gpu) if wanted else None

    def _report(self, tuner: Any, known: int, earlier: int) -> None:
        """Record the chosen configuration, if one was chosen in this call.

        `known` choices and `earlier` launches were there before.
        """
        chosen = getattr(tuner, "best_config", None)
        if chosen is None or len(tuner.configs) < 2 or len(tuner.cache) == known:
            return
        kernel = identity_of(tuner) or KernelIdentity(getattr(tuner.base_fn, "__name__", "kernel"))
        about = {"chosen": _words(chosen), "of": len(tuner.configs), "how": self._how(tuner, earlier)}
        self._session.note({"event": "autotune", **kernel.to_dict(), **about})

    def _forget(self, tuner: object) -> None:
        """Drop what is known about an autotuner's configurations."""
        self._fitting.pop(id(tuner), None)
        self._ran.pop(id(tuner), None)

    def _ran_since(self, earlier: int) -> bool:
        """Whether a launch after the `earlier` ones was run, and not left out."""
        return any(launch.treatment != LEFT_OUT for launch in self._session.launches[earlier:])

    def _how(self, tuner: Any, earlier: int) -> str:
        """How a configuration was chosen, in words."""
        fitting = self._fitting.get(id(tuner), [])
        if self._session.options.all_configs:
            # if the kernel's own rules leave one configuration, the autotuner takes it without a benchmark
            ran = self._ran.get(id(tuner), 0) if fitting else self._ran_since(earlier)
            return _how_many(int(ran), len(fitting) or 1, len(tuner.configs))
        known = [seconds for seconds in fitting if seconds is not None]
        if self._gpu is None or not known:
            asked = self._session.options.best_config
            return "the first that fits" + (": none could be timed" if asked else "")
        return f"the shortest predicted time, {1e6 * min(known):.3g} us on {self._gpu.name}; {len(known)} were timed"


def _without_disk(tuner: object, key: object, configs: object, bench: Callable[[], object]) -> bool:
    """Choose again, without Triton's file of earlier choices: those may have been made with other options."""
    bench()
    return False


def _how_many(ran: int, fitting: int, configurations: int) -> str:
    """How many of an autotuner's configurations were run, in words, and why others were not."""
    if ran == configurations:
        return "all were run"
    reasons = []
    if fitting < configurations:
        reasons.append(f"{configurations - fitting} did not fit or were left out by the kernel's own rules")
    if ran < fitting:
        reasons.append(f"{fitting - ran} were left out by the options of this run")
    return f"{ran or 'none'} of {configurations} were run: {'; '.join(reasons)}"


def _words(config: Any) -> str:
    """A configuration in words, with only the values it sets."""
    parts = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name} {value}" for name, value in parts.items())
