"""Programs of the host that drive one chip run as they lie: orchestrations in Python, and a test's own test_run."""

import pytest
from tests.npu.cpp.compiled import KERNELS, ORCHESTRATION, needs_compiler

from kernbench.common.errors import BenchError
from kernbench.npu.scene.cases import cases_of
from kernbench.npu.scene.host_program import Buffer, DataType, TaskArgs, TensorArgType, Worker, scalar_to_uint64
from kernbench.npu.scene.running import run_case

pytestmark = pytest.mark.programs

TEXT = f"""
import ctypes

import numpy as np
from simpler.task_interface import ArgDirection as D
from simpler.task_interface import CallConfig, DataType, TaskArgs, TensorArgType, scalar_to_uint64
from simpler.worker import FRAME, MAILBOX

from simpler_setup import Scalar, SceneTestCase, TaskArgsBuilder, TensorArg, scene_test
from simpler_setup.scene_test import _build_l3_task_args, _rehosted_ref

FRAMES = MAILBOX // FRAME
SEEN = []


def look(args):
    (given, tag), = args.tensors
    SEEN.append(float(np.asarray(given.value).max()))


def program(orch, callables, task_args, config):
    args, written = _build_l3_task_args(task_args, callables.scale_sig)
    assert written == ["out"]
    orch.submit_next_level(callables.scale, callables.keep(args), config, worker=task_args.chip)
    after = TaskArgs()
    after.add_tensor(_rehosted_ref(task_args, "out"), TensorArgType.INPUT)
    orch.submit_sub(callables.look, after)
    assert SEEN.pop() > 0, "the function of the host ran before the task"
    orch.submit_next_level(callables.scale, args, config, worker=0)


SCALE = {{
    "name": "scale",
    "orchestration": {{
        "source": {str(ORCHESTRATION)!r},
        "function_name": "aicpu_orchestration_entry",
        "signature": [D.IN, D.OUT, D.IN],
    }},
    "incores": [{{"func_id": 0, "source": {str(KERNELS)!r}, "core_type": "aiv", "signature": [D.IN, D.OUT]}}],
}}


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestProgram(SceneTestCase):
    CALLABLE = {{"orchestration": program, "callables": [SCALE, {{"name": "look", "callable": look}}]}}
    CASES = [
        {{"name": "one", "platforms": ["a2a3", "a5"], "config": {{"device_count": 1}}, "params": {{"factor": 1.0}}}},
        {{"name": "wrong", "platforms": ["a5"], "config": {{"device_count": 1}}, "params": {{"factor": 3.0}}}},
        {{"name": "other", "platforms": ["a2a3"], "params": {{"factor": 1.0, "chip": 1}}}},
    ]

    def generate_args(self, params):
        x = np.arange(8 * 64, dtype=np.float32).reshape(-1, 64)
        args = TaskArgsBuilder(
            TensorArg("x", x),
            TensorArg("out", np.zeros_like(x)),
            TensorArg("sizes", np.array([1], np.int32)),
            Scalar("factor", ctypes.c_float(params["factor"])),
        )
        args.chip = params.get("chip", 0)
        return args

    def compute_golden(self, args, params):
        args.out[:] = 2 * args.x


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestOwn(SceneTestCase):
    CALLABLE = {{"callables": [SCALE]}}
    CASES = [{{"name": "own", "platforms": ["a2a3"]}}]
    EXPECTED = 2

    def test_run(self, st_worker):
        x, out, sizes = (st_worker.create_buffer(size) for size in (2048, 2048, 4))
        values = np.frombuffer(x.shm.buf, np.float32)
        values[:] = 5
        np.frombuffer(sizes.shm.buf, np.int32)[:] = 1

        def program(orch, _, config):
            args = TaskArgs()
            args.add_tensor(x.tensor((8, 64), DataType.FLOAT32), TensorArgType.INPUT)
            args.add_tensor(out.tensor((8, 64), 0), TensorArgType.OUTPUT_EXISTING)
            args.add_tensor(sizes.tensor((1,), DataType.INT32), TensorArgType.INPUT)
            args.add_scalar(scalar_to_uint64(1.0))
            orch.submit_next_level(type(self)._st_chip_handles["scale"], args, config, worker=0)

        st_worker.run(program, args=None, config=CallConfig())
        assert (np.frombuffer(out.shm.buf, np.float32) == self.EXPECTED * values).all(), "out is not what it should be"
        out.close()


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestOwnWrong(TestOwn):
    EXPECTED = 3


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestLooksInside(TestOwn):
    def test_run(self, st_worker):
        st_worker.mailbox.read()


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestNothing(TestOwn):
    def test_run(self, st_worker):
        st_worker.create_buffer(4)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "test_program.py").write_text(TEXT)
    return tmp_path / "test_program.py"


def outcome(file, chip, title):
    (case,) = cases_of(file, chip, [title])
    return run_case(case)


@needs_compiler
@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_an_orchestration_in_python_submits_tasks_and_functions(file, chip):
    found = outcome(file, chip, "TestProgram.one")
    assert found.is_good, (found.wrong, found.refusal)
    # two launches, one after the other
    assert len(found.run.launches) == 2
    assert found.time_ps == sum(run.metrics["time_ps"] for run in found.run.launches)


@needs_compiler
def test_a_wrong_result_of_a_program_is_reported_by_the_test(file):
    assert "out is wrong" in outcome(file, "a5", "TestProgram.wrong").wrong


@needs_compiler
def test_a_test_of_its_own_runs_with_the_worker(file):
    found = outcome(file, "a2a3", "TestOwn.own")
    assert found.is_good, (found.wrong, found.refusal)
    assert "out is not what it should be" in outcome(file, "a2a3", "TestOwnWrong.own").wrong


def test_what_cannot_run_here_is_refused_by_name(file):
    assert "there is one chip" in outcome(file, "a2a3", "TestProgram.other").refusal
    assert "no attribute 'mailbox'" in outcome(file, "a2a3", "TestLooksInside.own").refusal
    assert "launches nothing on a chip" in outcome(file, "a2a3", "TestNothing.own").refusal


def test_arguments_of_one_task_that_share_memory_are_refused():
    buffer = Buffer(0, 64)
    args = TaskArgs()
    args.add_tensor(buffer.tensor((16,), DataType.FLOAT32), TensorArgType.INPUT)
    args.add_tensor(buffer.tensor((8,), DataType.FLOAT32, 32), TensorArgType.INOUT)
    with pytest.raises(BenchError, match="buffer_0_1 and buffer_0_0 of one task lie in the same memory"):
        Worker(lambda task, specs: None, "a2a3").submit_next_level("scale", args)


def test_numbers_as_64_bits():
    import ctypes

    assert scalar_to_uint64(1.0) == scalar_to_uint64(ctypes.c_float(1.0)) == 0x3F800000
    assert scalar_to_uint64(-1) == 2**64 - 1
    assert scalar_to_uint64(ctypes.c_double(1.0)) == 0x3FF0000000000000
    assert scalar_to_uint64(ctypes.c_int32(7)) == 7
