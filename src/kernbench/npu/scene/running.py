"""Runs a case of a test class: compiles its sources, launches its orchestration, and compares the result as the test
does.
"""

from dataclasses import dataclass

from kernbench.common.errors import KernbenchError
from kernbench.npu.chip import Chip
from kernbench.npu.scene.cases import HOST, Case
from kernbench.npu.scene.hosting import run_program
from kernbench.npu.scene.modules import offered
from kernbench.npu.scene.offered import ArgDirection, TaskArgsBuilder
from kernbench.npu.scene.sources import changes_of, kernels_of, orchestration_of, own, put_back, table_of, value_of
from kernbench.result.run import Run
from kernbench.safety.budget import Budget


@dataclass(frozen=True)
class Outcome:
    """The result of a case: `wrong` says what is wrong with the outputs, `refusal` why it did not run."""

    case: Case
    run: Run | None = None
    wrong: str = ""
    refusal: str = ""

    @property
    def is_good(self) -> bool:
        """Right and safe."""
        return self.run is not None and bool(self.run.safe) and not self.wrong

    @property
    def time_ps(self) -> int | None:
        """Predicted time, if there is one."""
        time = None if self.run is None else self.run.metrics.get("time_ps")
        return time if isinstance(time, int) else None


def run_case(case: Case, budget: Budget | None = None) -> Outcome:
    """Run a case; what cannot be run is refused with its reason."""
    if case.refusal:
        return Outcome(case, refusal=case.refusal)
    with offered(case.file):
        try:
            return Outcome(case, *run_program(case, budget)) if case.level == HOST else _run(case, budget)
        except KernbenchError as error:
            return Outcome(case, refusal=str(error))


def _run(case: Case, budget: Budget | None) -> Outcome:
    test = case.test()
    given = own(case, "generate_args", test.generate_args, case.params)
    golden = None
    if not case.skips_golden:
        golden = given.clone()
        own(case, "compute_golden", test.compute_golden, golden, case.params)
    chip = Chip(case.chip, changes_of(case), kernels=kernels_of(case), budget=budget)
    orchestrate = orchestration_of(case, given.specs)
    run = chip.launch(orchestrate, *(value_of(spec) for spec in given.specs))
    if run.safe:
        run = chip.retime(run)
    put_back(given.specs, run)
    wrong = ""
    if golden is not None and run.outputs:
        try:
            test.compare_outputs(given, golden, _outputs(case, given), case.params)
        except Exception as error:
            wrong = str(error) or f"the test's own comparison raises {type(error).__name__}"
    return Outcome(case, run, wrong)


def _outputs(case: Case, given: TaskArgsBuilder) -> list[str]:
    """Names of the tensors that the signature declares as written."""
    signature = table_of(case, "orchestration").get("signature", [])
    directions = list(signature) if isinstance(signature, (list, tuple)) else []
    written = (ArgDirection.OUT, ArgDirection.INOUT)
    return [name for name, way in zip(given.tensor_names(), directions, strict=False) if way in written]
