"""Memory: bounds, alignment, types, what nobody wrote, and too much of it."""

import numpy as np
import pytest
from tests.mesh.planted import D, S, at, launch, line_of, only

from kernbench import mesh

pytestmark = pytest.mark.usefixtures("small_heap")


def loads_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr + 4 * D * 4 - 8, shape=(S, D))
    tl.store(o_ptr, x)


def stores_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr + D * 4, x)  # one row too far


def loads_before_the_start(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr - 4, shape=(S, D))
    tl.store(o_ptr, x)


def loads_nowhere(q_ptr, o_ptr, *, tl):
    x = tl.load(12345, shape=(S, D))
    tl.store(o_ptr, x)


def strided_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D), strides=(D + 1, 1))
    tl.store(o_ptr, x)


@pytest.mark.parametrize(
    ("kernel", "mark", "words"),
    [
        (
            loads_past_the_end,
            "tl.load",
            "120 bytes past its end; 'q' (4x8 f32) is valid in [0x10000000000, 0x10000000080)",
        ),
        (stores_past_the_end, "one row too far", "32 bytes past its end; 'o' (4x8 f32) is valid in"),
        (loads_before_the_start, "tl.load", "4 bytes before its start; 'q' (4x8 f32)"),
        (loads_nowhere, "tl.load", "no tensor lies there"),
        (strided_past_the_end, "tl.load", "12 bytes past its end; 'q'"),
    ],
)
def test_out_of_bounds(kernel, mark, words):
    run = launch(kernel)
    finding = only(run, "out-of-bounds")
    at(finding, kernel, mark)
    assert words in finding.message
    assert finding.ranks == (0, 1)
    if "load" in mark:
        assert np.isnan(run.outputs["o"]).all()
    else:
        assert not np.isnan(run.outputs["o"]).any()


def test_bounds_need_no_data():
    assert only(launch(loads_past_the_end, shapes_only=True), "out-of-bounds")


def stores_again(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S - 1, D))
    for step in (0, 4, 32, 36, 2, -4):
        tl.store(o_ptr + step, x)
    tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))
    tl.store(o_ptr + 32, tl.load(q_ptr, shape=(S, D)))
    tl.store(o_ptr + 64, x.to("f16"))
    tl.store(o_ptr + 64, x, strides=(0, 1))


def test_a_store_like_an_earlier_one_is_looked_at_where_it_lies():
    with_data, without = launch(stores_again), launch(stores_again, shapes_only=True)
    assert without.findings == with_data.findings
    assert {finding.kind for finding in without.findings} == {"out-of-bounds", "misaligned", "race"}
    for one, other in zip(with_data.recording.streams, without.recording.streams, strict=True):
        for name in ("op", "a", "x", "y"):
            assert one.rows.column(name).tolist() == other.rows.column(name).tolist()


def loads_misaligned(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr + 2, shape=(S - 1, D))
    tl.store(o_ptr, tl.cat(x, x[0:1]))


def stores_misaligned(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr + 1, x[0:2])  # odd


@pytest.mark.parametrize(("kernel", "mark"), [(loads_misaligned, "tl.load"), (stores_misaligned, "# odd")])
def test_misaligned(kernel, mark):
    finding = only(launch(kernel), "misaligned")
    at(finding, kernel, mark)
    assert "not a multiple of 4" in finding.message


def loads_the_output(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(2, D))
    tl.store(o_ptr, x)
    y = tl.load(o_ptr, shape=(S, D))
    tl.store(o_ptr, y)


def loads_a_fresh_workspace(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S, D), "f32")
    x = tl.load(spill, shape=(S, D))
    tl.store(o_ptr, x)


def spills_cleanly(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S, D), "f32")
    tl.store(spill, tl.load(q_ptr, shape=(S, D)))
    tl.store(o_ptr, tl.load(spill, shape=(S, D)))


def test_reading_what_nobody_wrote():
    run = launch(loads_the_output)
    finding = only(run, "uninitialised-read")
    at(finding, loads_the_output, "y = tl.load")
    assert "'o' (4x8 f32) reads 16 of 32 elements nobody wrote, the first at [2, 0]" in finding.message
    assert np.isnan(run.outputs["o"][2:S]).all()


def test_workspace_is_poisoned_until_written():
    assert "workspace of" in only(launch(loads_a_fresh_workspace), "uninitialised-read").message
    assert launch(spills_cleanly).safe


def reads_unwritten_bytes_as_another_type(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S * D * 4,), "i8")
    tl.store(spill, tl.zeros((4,), "i8"))
    tl.store(o_ptr, tl.load(spill, shape=(S, D), dtype="f32"))


def test_unwritten_bytes_are_seen_through_another_type():
    finding = only(launch(reads_unwritten_bytes_as_another_type), "uninitialised-read")
    assert "reads 31 of 32 elements nobody wrote, the first at [0, 1]" in finding.message


def reads_as_half(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D), dtype="f16")
    tl.store(o_ptr, x)


def test_reading_a_float_as_another_float():
    finding = only(launch(reads_as_half), "type-confusion")
    at(finding, reads_as_half, "tl.load")
    assert "reads 'q' (4x8 f32) as f16" in finding.message


def store_folds_onto_itself(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr, x, strides=(1, 1))


def test_strided_store_onto_itself_is_a_race():
    at(only(launch(store_folds_onto_itself), "race"), store_folds_onto_itself, "strides=(1, 1)")


def hoards(q_ptr, o_ptr, *, tl):
    kept = [tl.zeros((256, 1024)) for _ in range(3)]
    kept.append(tl.full((512, 1024), 1.0))  # the drop too many
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)


def lets_go(q_ptr, o_ptr, *, tl):
    for _ in range(10):
        big = tl.zeros((512, 1024))
        del big
    tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))


def test_scratch_overflow_lists_what_fills_it():
    finding = only(launch(hoards), "scratch-overflow")
    at(finding, hoards, "the drop too many")
    assert "a value of 2 MiB does not fit the scratch memory: 3 MiB of 4 MiB are in use" in finding.message
    assert finding.message.count("256x1024 f32 (1 MiB)") == 3
    assert f":{line_of(hoards, 'for _ in range(3)')}" in finding.message
    assert launch(lets_go).safe


def test_messages_name_the_type_of_the_value():
    """The tensor's type, too, where a store rounds to it; no type where nobody has said one."""

    def kernel(x_ptr, o_ptr, *, tl):
        value = tl.zeros((2, 4), dtype="f32")
        tl.store(o_ptr + 1, tl.zeros((1, 4), dtype="f32"))
        tl.store(o_ptr + 24, value)
        tl.store(x_ptr + 2**44, value)
        tl.load(x_ptr + 2**45, shape=(2, 4))
        tl.load(o_ptr + 24, shape=(2, 4))
        tl.store(o_ptr, value)

    host = mesh.Host(ranks=1)
    run = host.launch(kernel, host.shard(np.zeros((2, 4), np.float32)), host.empty((2, 4), "f16", axis=0))
    messages = [finding.message for finding in run.findings]
    for begin in (
        "store of a 1x4 f32 tile, stored as f16, at ",
        "store of a 2x4 f32 tile, stored as f16, touches ",
        "store of a 2x4 f32 tile at ",
        "load of a 2x4 tile at ",
        "load of a 2x4 f16 tile touches ",
    ):
        assert any(message.startswith(begin) for message in messages), (begin, messages)


def loads_beyond(q_ptr, o_ptr, *, tl):
    tl.load(1 << 63, shape=(S, D))


def stores_beyond(q_ptr, o_ptr, *, tl):
    tl.store(q_ptr << 60, tl.zeros((S, D)))


def tile_beyond(q_ptr, o_ptr, *, tl):
    tl.load(tl.make_block_ptr(q_ptr, (1 << 80, D), (D, 1), (1 << 70, 0), (S, D)), boundary_check=(0,))


@pytest.mark.parametrize(
    ("kernel", "mark"), [(loads_beyond, "tl.load"), (stores_beyond, "tl.store"), (tile_beyond, "tl.load")]
)
@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_address_of_more_bits_than_there_are(kernel, mark, shapes_only):
    finding = only(launch(kernel, shapes_only=shapes_only), "out-of-bounds")
    at(finding, kernel, mark)
    assert "beyond all memory" in finding.message
