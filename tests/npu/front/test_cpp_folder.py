"""A folder of C++ sources with a golden file is a bench: kernel_config.py says what is what, generate_inputs what it is
given."""

import numpy as np
import pytest
from tests.npu.cpp.compiled import KERNELS, ORCHESTRATION, needs_compiler

from kernbench.bench import folder_bench, run_bench
from kernbench.common.errors import BenchError

pytestmark = pytest.mark.programs

CONFIG = f"""
ORCHESTRATION = {{"source": {str(ORCHESTRATION)!r}, "function_name": "aicpu_orchestration_entry"}}
KERNELS = [{{"func_id": 0, "name": "SCALE", "source": {str(KERNELS)!r}, "core_type": "aiv", "function_name": "scale"}}]
"""
GOLDEN = """
import numpy as np

RTOL = ATOL = 1e-6
__outputs__ = ["out"]


def generate_inputs(case):
    x = np.random.standard_normal((16, 64)).astype(np.float32)
    return {"x": x, "out": np.zeros_like(x), "sizes": np.array([2], np.int32), "factor": 3.0}


def compute_golden(tensors, case):
    tensors["out"][:] = 6 * tensors["x"]
"""


def bench_of(folder, config, machine="a2a3"):
    kernels = folder / "kernels"
    kernels.mkdir(parents=True)
    if config:
        (kernels / "kernel_config.py").write_text(config)
    else:
        (kernels / "scale.cpp").write_text(KERNELS.read_text())
    (folder / "golden.py").write_text(GOLDEN)
    return folder_bench(kernels, folder / "golden.py", machine)


@needs_compiler
@pytest.mark.parametrize("machine", ["a2a3", "a5"])
def test_it_is_right_safe_and_timed(tmp_path, machine):
    run = run_bench(bench_of(tmp_path, CONFIG, machine), "case_0", timed=True)
    assert run.ok, run.findings
    assert run.metrics["time_ps"] > 0
    assert np.isfinite(run.outputs["out"]).all()


def test_sources_alone_say_what_is_missing(tmp_path):
    with pytest.raises(BenchError, match=r"nothing says which is the orchestration.*kernbench npu test"):
        bench_of(tmp_path, "")
