"""GPU files: every figure has a source, errors say what is wrong with which, and a file written is read as it was."""

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import MachineError
from kernbench.machine.keys import SHAPE
from kernbench.ptx.machine import ASSUMED, MEASURED, SOURCES, Constant, Figure, bundled, is_gpu, load
from kernbench.ptx.target import TARGET

H200 = load("h200")
KEY = Constant("cycles", "rate", "a time", 0, 100)


@pytest.mark.parametrize("name", ["a100", "b200", "h100", "h200"])
def test_every_figure_of_a_bundled_gpu_says_where_it_comes_from(name):
    gpu = load(name)
    assert gpu.name == name
    for figure in gpu.figures().values():
        assert figure.source in SOURCES
        assert figure.note
        assert figure.low <= figure <= figure.high
    assert sum(gpu.sources().values()) == len(gpu.figures())


def test_predictions_are_those_of_the_figures_whatever_the_file_is_called(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "h200"\n', encoding="utf-8")
    same = load(file)
    assert (same.name, same.validity) == ("mine", "validated")
    assert H200.validity == "validated"
    other = H200.override({"clock.most": "1 GHz"})
    assert (other.name, other.predictions, other.validity) == ("h200", "validated", "not validated")
    # as they were, by another way
    again = other.override({"clock.most": H200.clock.most})
    assert again is not H200
    assert again.validity == "validated"


@pytest.mark.parametrize("name", bundled())
def test_a_gpu_written_to_a_file_is_read_as_it_was(name, tmp_path):
    file = tmp_path / "again.toml"
    file.write_text(load(name).to_toml(), encoding="utf-8")
    again = load(file)
    assert again == load(name)
    assert {n: vars(f) for n, f in again.figures().items()} == {n: vars(f) for n, f in load(name).figures().items()}


def test_what_holds_between_the_figures():
    for gpu in map(load, bundled()):
        assert gpu.l1.latency < gpu.l2.latency < gpu.hbm.latency
        assert gpu.sm.shared_cta <= gpu.sm.shared <= gpu.sm.l1
        assert gpu.clock.tensor <= gpu.clock.streaming <= gpu.clock.most
        assert gpu.clock.tensor <= gpu.clock.products <= gpu.clock.most


def test_what_is_taken_from_an_h200_is_what_one_measured():
    for gpu in map(load, bundled()):
        for name, figure in gpu.figures().items():
            if figure.note == "as H200" and figure.source == ASSUMED:
                assert float(figure) == pytest.approx(float(H200.figures()[name]), rel=0.06), (gpu.name, name)


def test_a_machine_without_measurements_does_not_claim_any():
    for name in bundled():
        gpu = load(name)
        if gpu.calibrated == "not yet":
            assert gpu.predictions == "not validated"
            assert TARGET.machines.size(gpu).endswith("not validated")


def test_the_architecture_and_counts_agree_with_the_emulator():
    from kernbench.ptx.emulator.engine.machine import architecture

    for gpu in map(load, bundled()):
        known = architecture(gpu.arch)
        assert (known.sms, known.warps_per_sm, known.ctas_per_sm) == (gpu.chip.sms, gpu.sm.warps, gpu.sm.ctas)
        assert (known.shared_per_sm, known.shared_per_block) == (gpu.sm.shared, gpu.sm.shared_cta)


def test_a_key_set_by_hand_is_assumed_and_exact():
    changed = H200.override({"l2.latency": 300, "hbm.bandwidth": "4 TB/s"})
    assert changed.l2.latency == 300
    assert (changed.l2.latency.low, changed.l2.latency.source, changed.hbm.bandwidth) == (300, ASSUMED, 4000)
    assert changed.hash != H200.hash


def test_a_source_changes_no_time():
    same = H200.override({"l2.latency": Figure(H200.l2.latency, 1, 999, MEASURED, "chase")})
    assert same.hash == H200.hash
    assert same.l2.latency.source == MEASURED


def test_rates_are_timed_again_and_counts_are_run_again():
    keys = H200.keys()
    roles = {key.name: key.role for key in keys}
    assert roles["chip.sms"] == roles["sm.shared"] == SHAPE
    assert H200.override({"l2.latency": 300}).shape_key() == H200.shape_key()
    assert H200.shape_key() != load("b200").shape_key()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'latency = { value = 4, source = "guessed" }',
            "unknown source 'guessed'; known: measured, published",
        ),
        ('latency = { value = 4, range = [5, 6], source = "assumed" }', "value 4 is outside its own range, 5 to 6"),
        ('latency = { value = 4, range = 5, source = "assumed" }', "range = 5 must be [least, most], not an integer"),
        ('latency = { value = -1, source = "assumed" }', "out of range. Allowed: 0 to 100000 cycles"),
        ("bytes_per_cycle = -1", "out of range. Allowed: more than 0, at most 1000000 bytes/cycle"),
        ('latency = { value = 4, note = "x" }', "a figure needs value and source"),
        ('latency = { value = 4, source = "assumed", unit = "ns" }', "unknown part of a figure 'unit'"),
        ("latency = true", "must be a number, not true or false"),
        ("latncy = 4", "unknown key 'latncy'"),
        ("capacity = 1.5", "must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, words, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "h200"\n[l2]\n{text}\n', encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        load(file)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{file}: l2.")


@given(st.floats(0, 100), st.floats(0, 10), st.floats(0, 10), st.sampled_from(sorted(SOURCES)), st.text("ab \"'"))
def test_a_figure_survives_its_text(value, below, above, source, note):
    import tomllib

    figure = KEY.read(Figure(value, max(0, value - below), min(value + above, 1000), source, note))
    again = KEY.read(tomllib.loads(f"x = {KEY.toml(figure)}")["x"])
    assert (float(again), vars(again)) == (float(figure), vars(figure))
    assert KEY.read(KEY.data(figure)) == figure


def test_a_figure_is_copied_whole():
    figure = H200.l2.far
    for again in (copy.deepcopy(figure), pickle.loads(pickle.dumps(figure))):
        assert (float(again), vars(again)) == (float(figure), vars(figure))


def test_files_of_other_machines_are_not_gpus(tmp_path):
    assert is_gpu("h200")
    assert not is_gpu("reference")
    assert not is_gpu(tmp_path / "missing.toml")


def test_gpu_files_need_neither_greenlet_nor_pydantic():
    script = (
        "import sys\n"
        "for name in ('greenlet', 'pydantic', 'threadpoolctl', 'typer', 'numba'): sys.modules[name] = None\n"
        "from kernbench.ptx.machine import load\n"
        "assert load('h200').chip.sms == 132\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("key", ["line", "sector", "gone", "bytes_per_cycle"])
def test_what_everything_is_divided_by_is_not_0(key, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "h200"\n[l1]\n{key} = 0\n', encoding="utf-8")
    with pytest.raises(MachineError, match=f"l1.{key} = 0: out of range. Allowed: more than 0"):
        load(file)
