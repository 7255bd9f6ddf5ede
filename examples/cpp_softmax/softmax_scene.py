"""Softmax of rows in C++ as a test class: one round of eight rows is safe, several are not."""

import numpy as np
from simpler.task_interface import ArgDirection as D
from simpler_setup import SceneTestCase, TaskArgsBuilder, TensorArg, scene_test


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestSoftmax(SceneTestCase):
    """Rows of 64 numbers."""

    RTOL = ATOL = 1e-5
    CALLABLE = {  # noqa: RUF012
        "orchestration": {"source": "kernels/orchestration.cpp", "signature": [D.IN, D.OUT]},
        "incores": [{"func_id": 0, "name": "softmax", "source": "kernels/softmax.cpp", "core_type": "aiv"}],
    }
    CASES = [  # noqa: RUF012
        {"name": "one_round", "platforms": ["a2a3sim"], "params": {"rows": 8}},
        {"name": "three_rounds", "platforms": ["a2a3sim"], "params": {"rows": 24}},
    ]

    def generate_args(self, params):
        """Random rows, and room for the result."""
        x = np.random.default_rng(1).standard_normal((params["rows"], 64)).astype(np.float32)
        return TaskArgsBuilder(TensorArg("x", x), TensorArg("out", np.zeros_like(x)))

    def compute_golden(self, args, params):
        """The same in double precision."""
        e = np.exp(args.x.astype(np.float64))
        args.out[:] = e / e.sum(axis=1, keepdims=True)
