"""The probes of a GPU's arithmetic run, and say so where there is none."""

import numpy as np
import pytest
from benchmarks.ptx_probes import FORMS, Unit, cut, main, multiplied, probes

from benchmarks import ptx_probes
from kernbench import ptx


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(ptx_probes, "unavailable", lambda: "the package cuda-bindings is missing")
    assert main([]) == 2
    assert "no GPU to ask: the package cuda-bindings is missing" in capsys.readouterr().err


@pytest.mark.parametrize("unit", [Unit("sm_90a", False), Unit("sm_100a", True)])
def test_a_tile_is_multiplied(unit):
    """Whole numbers: D is A B, whatever the order."""
    form = FORMS[0]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (rows, 16)).astype(np.float64) for rows in (unit.rows, 8))
    words = multiplied(ptx.EmulatedDevice(unit.arch), unit, form, cut(a, "f16"), cut(b, "f16"))
    found = words.view(np.float32)
    wanted = a @ b.T
    if unit.tensor_memory:
        np.testing.assert_array_equal(found, wanted)
        return
    # lane 4g + p of a warp holds of rows g and g + 8 the columns 2p and 2p + 1
    for thread in range(128):
        warp, group, part = thread // 32, thread % 32 // 4, thread % 4
        rows = wanted[16 * warp + group :: 8][:2, 2 * part : 2 * part + 2]
        np.testing.assert_array_equal(found[thread], rows.reshape(-1))


def test_tiles_of_a_device_that_is_the_emulator_agree(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(ptx_probes, "FORMS", FORMS[:1])
    file = tmp_path / "kept.npz"
    assert main(["--device", "emulator", "--only", "tiles", "--keep", str(file)]) == 0
    said = capsys.readouterr().out
    assert "f32.f16.f16 k16 one large" in said
    assert said.splitlines()[-1].endswith("tiles 0 differ")
    assert len(np.load(file)) == 3 * len(list(probes(64, 16, "f16", "f16")))
