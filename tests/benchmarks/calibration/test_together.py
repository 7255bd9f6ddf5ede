"""Kernels of CTAs that wait for each other, or share an L1, end and do what they say on the emulator."""

import numpy as np
import pytest
from benchmarks.calibration.together import WAYS, again_text, ring_text

from kernbench import ptx


@pytest.mark.parametrize("way", WAYS)
def test_a_flag_goes_round_all_ctas(way):
    device = ptx.EmulatedDevice("sm_90a")
    flags = device.array(np.zeros(4 * 32, np.uint32), "flags")
    run = device.launch(ptx.parse(ring_text(way)), 4, 32, [flags, 3, 0], record=True)
    assert not run.findings
    assert flags.numpy()[::32].tolist() == [3] * 4
    # the last turn of the first CTA waits for nothing: three turns of four, but for the first
    assert run.recording.handovers == 11


def test_ctas_read_bytes_of_their_own():
    device = ptx.EmulatedDevice("sm_90a")
    data = device.array(np.zeros(2 * 16384 // 4, np.uint32), "data")
    run = device.launch(ptx.parse(again_text()), 2, 256, [data, 2, 16384], record=True)
    assert not run.findings
    assert float(run.recording.events.own.sum()) > 0
