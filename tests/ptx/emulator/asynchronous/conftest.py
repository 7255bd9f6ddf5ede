"""Fixtures that run the asynchronous kernels."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import PIPE, STORE

from kernbench import ptx


def edited(text, *edits):
    """`text` with each (old, new) replaced; old must be there."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


class Bench:
    """Runs kernels by their text, with edits."""

    def __init__(self, arch="sm_90a"):
        self.device = ptx.EmulatedDevice(arch)

    def launch(self, text, grid, block, args, **options):
        self.run = self.device.launch(ptx.parse(text).kernels["kernel"], grid, block, args, **options)
        return self.run

    def pipe(self, *edits, tiles=8, **options):
        x = np.random.default_rng(1).standard_normal((tiles * 32, 32)).astype(np.float32)
        self.x = x
        source = self.device.array(x, "x")
        out = self.device.empty((tiles, 128), np.float32, "out")
        tensor_map = self.device.tensor_map(source, dims=(32, tiles * 32), strides=(128,), box=(32, 16))
        return self.launch(edited(PIPE, *edits), 2, 160, [tensor_map, out, tiles], **options)

    def pipe_result(self):
        rows = self.x.reshape(-1, 1024)
        return (rows[:, :128] + rows[:, 128:256]) + (rows[:, 512:640] + rows[:, 896:])

    def store(self, *edits, **options):
        out = self.device.empty((32, 32), np.uint32, "out")
        tensor_map = self.device.tensor_map(out, dims=(32, 32), strides=(128,), box=(32, 8))
        return self.launch(edited(STORE, *edits), 1, 128, [tensor_map], **options)


def kinds(run):
    return sorted({finding.kind for finding in (*run.findings, *run.formal)})


@pytest.fixture
def bench():
    return Bench()
