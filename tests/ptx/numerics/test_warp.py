import numpy as np
import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.numerics import warp

LANES = np.arange(64)


def shuffled(mode, b, c):
    a = (LANES + 100).astype(np.uint32)
    out, inside = np.empty(64, np.uint32), np.empty(64, bool)
    warp.shuffle(mode)(a, np.array(b, np.uint32), np.array(c, np.uint32), out, inside)
    return out.astype(int) - 100, inside


def test_the_four_modes_over_whole_warps():
    lane, start = LANES % 32, LANES - LANES % 32
    got, inside = shuffled("down", 3, 0x1F)
    assert (got == np.where(lane + 3 < 32, LANES + 3, LANES)).all()
    assert (inside == (lane + 3 < 32)).all()
    got, inside = shuffled("up", 3, 0)
    assert (got == np.where(lane >= 3, LANES - 3, LANES)).all()
    assert (inside == (lane >= 3)).all()
    got, inside = shuffled("bfly", 5, 0x1F)
    assert (got == start + (lane ^ 5)).all()
    assert inside.all()
    got, _ = shuffled("idx", 7, 0x1F)
    assert (got == start + 7).all()


def test_segments():
    # Segments of eight lanes, as width=8 compiles: segment mask 0x18, clamp 0x1f.
    got, inside = shuffled("idx", 9, 0x181F)
    assert (got == LANES - LANES % 8 + 1).all()
    got, inside = shuffled("down", 2, 0x181F)
    assert (got == np.where(LANES % 8 < 6, LANES + 2, LANES)).all()
    assert (inside == (LANES % 8 < 6)).all()


def test_amounts_by_lane_and_in_place():
    a = LANES.astype(np.uint32)
    inside = np.empty(64, bool)
    warp.shuffle("idx")(a, (31 - LANES % 32).astype(np.uint32), np.array(0x1F, np.uint32), a, inside)
    assert (a == LANES - LANES % 32 + 31 - LANES % 32).all()
    sources, inside = warp.source_lanes("up", 64, np.array(1, np.uint32), np.array(0, np.uint32))
    assert sources[0] == 0
    assert sources[33] == 32
    assert not inside[32]


def test_votes_and_ballots():
    members = np.ones(64, bool)
    members[32:40] = False
    predicate = LANES % 2 == 0
    assert warp.ballot(predicate, members).tolist() == [0x55555555, 0x55555500]
    assert warp.vote("all", members, members).tolist() == [True, True]
    assert warp.vote("any", LANES == 3, members).tolist() == [True, False]
    assert warp.vote("uni", (LANES < 32) | (LANES == 33), members).tolist() == [True, True]
    with pytest.raises(MisuseError, match="unknown vote mode"):
        warp.vote("most", predicate, members)


def test_matches():
    members = np.ones(64, bool)
    members[33] = False
    values = np.where(LANES < 32, LANES % 2, 9).astype(np.uint64)
    same = warp.match_any(values, members)
    assert same[0] == 0x55555555
    assert same[1] == 0xAAAAAAAA
    assert same[40] == 0xFFFFFFFD
    words, flags = warp.match_all(values, members)
    assert (words[:32] == 0).all()
    assert not flags[:32].any()
    assert (words[32:] == 0xFFFFFFFD).all()
    assert flags[32:].all()


def test_reductions_count_members_only():
    members = LANES % 32 < 5
    values = (LANES.astype(np.int32) - 3).view(np.uint32)
    assert warp.redux("add", "s32", values, members).view(np.int32).tolist() == [-5, 155]
    assert warp.redux("min", "s32", values, members).view(np.int32).tolist() == [-3, 29]
    assert warp.redux("max", "u32", values, members).tolist() == [0xFFFFFFFF, 33]
    assert warp.redux("and", "b32", values, members)[1] == 29 & 30 & 31 & 32 & 33
    floats = np.where(LANES == 1, np.nan, LANES - 40.0).astype(np.float32).view(np.uint32)
    assert warp.redux_float("max", floats, members).view(np.float32).tolist() == [-36.0, -4.0]
    assert warp.redux_float("max", floats, members, nan=True)[0] == 0x7FFFFFFF
    assert warp.redux_float("max", floats, members, abs_=True).view(np.float32).tolist() == [40.0, 8.0]
