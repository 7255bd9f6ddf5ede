"""Plain functions as machine code give what they give as Python, and what numba makes of them."""

import operator
from types import FunctionType

import numpy as np
import pytest
from numba.core import types
from numba.core.registry import cpu_target
from tests.common.native import plain_functions as plain

from kernbench.common import compiled
from kernbench.common.native.entry import layout_is_known
from kernbench.common.native.functions import Module
from kernbench.common.native.kinds import FLOAT, INT, TRUTH, UINT, NotPlain, Scalar, combined, unified, wide
from kernbench.common.native_loops import NativeLoop, native_loop

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)

EDGES = {
    "int64": [0, 1, -1, 2, -7, 31, 1 << 62, -(1 << 63), (1 << 63) - 1],
    "uint64": [0, 1, 2, 7, 31, 1 << 62, 1 << 63, (1 << 64) - 1, 12345678901234567890],
    "int32": [0, 1, -1, 2, -7, 31, 1 << 30, -(1 << 31), (1 << 31) - 1],
    "uint32": [0, 1, 2, 7, 31, 1 << 30, 1 << 31, (1 << 32) - 1, 77],
    "int8": [0, 1, -1, 2, -7, 31, 64, -128, 127],
    "bool": [False, True, True, False, True, False, True, True, False],
}
KINDS = {
    "int8": Scalar("i", 8),
    "int32": Scalar("i", 32),
    "int64": INT,
    "uint8": Scalar("u", 8),
    "uint32": Scalar("u", 32),
    "uint64": UINT,
    "boolean": TRUTH,
    "float32": Scalar("f", 32),
    "float64": FLOAT,
}


def is_native(loop: NativeLoop) -> bool:
    return bool(loop.entries) and "by_numba" not in vars(loop)


def pairs(one: str, two: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edges of two types."""
    grid = np.meshgrid(np.array(EDGES[one], one), np.array(EDGES[two], two), indexing="ij")
    return grid[0].ravel(), grid[1].ravel()


def _order(x: int, y: int) -> int:
    return (x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("int64", "int64"),
        ("uint64", "uint64"),
        ("int64", "uint64"),
        ("uint64", "int64"),
        ("int32", "uint32"),
        ("uint32", "uint32"),
        ("int8", "int32"),
        ("uint32", "int64"),
    ],
)
@pytest.mark.sampled(4)
def test_whole_numbers_are_numbas(one, two):
    a, b = pairs(one, two)
    loop, expected, found = native_loop(plain.whole), np.zeros((14, a.size), np.int64), np.zeros((14, a.size), np.int64)
    compiled.njit()(plain.whole)(a, b, expected)
    loop(a, b, found)
    assert is_native(loop)
    if {one, two} == {"int64", "uint64"}:
        # numba compares these as floating-point numbers, of which neighbours are the same
        expected[10] = [_order(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert np.array_equal(found, expected)


def test_and_or_of_numbers():
    a, b = pairs("int64", "int64")
    loop, expected, found = native_loop(plain.either), np.zeros((3, a.size), np.int64), np.zeros((3, a.size), np.int64)
    compiled.njit()(plain.either)(a, b, expected)
    loop(a, b, found)
    assert is_native(loop)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_with_fractions_are_numbas(dtype):
    least, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    edges = np.array([0.0, -0.0, 1.5, -2.25, most, -least, np.inf, -np.inf, np.nan, 1 / 3], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    loop, expected, found = native_loop(plain.floating), np.zeros((6, a.size)), np.zeros((6, a.size))
    compiled.njit()(plain.floating)(a, b, expected)
    loop(a, b, found)
    assert is_native(loop)
    assert np.array_equal(found.view(np.uint64), expected.view(np.uint64))


def test_kinds_combine_as_numbas_types_do():
    context = cpu_target.typing_context
    cpu_target.target_context.refresh()
    names = {str(getattr(types, name)): kind for name, kind in KINDS.items()}
    for one, a in KINDS.items():
        for two, b in KINDS.items():
            given = getattr(types, one), getattr(types, two)
            for function in (operator.add, operator.mul, operator.floordiv):
                assert names[str(context.resolve_function_type(function, given, {}).return_type)] == combined(a, b)
            if "f" not in (a.form, b.form):
                found = context.resolve_function_type(operator.rshift, given, {}).return_type
                assert names[str(found)] == wide(a)
            shared = context.unify_types(*given)
            try:
                mine = unified(a, b)
            except NotPlain:
                continue
            assert names[str(shared)] == mine


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (5, 3), (4, 7), (40, 6), (101, 2)])
def test_loops_and_calls(rows, columns):
    loop, found, expected = native_loop(plain.loops), np.zeros(3, np.int64), np.zeros(3, np.int64)
    assert loop(rows, columns, found) == tuple(map(int, plain.loops(rows, columns, expected)))
    assert found.tolist() == expected.tolist()
    assert is_native(loop)


@pytest.mark.parametrize("gaps", [False, True])
def test_arrays(gaps):
    def given():
        cube, row = np.arange(96).reshape(4, 3, 8) - 9, np.arange(12)
        return (cube[:, :, ::2], row[::3]) if gaps else (cube[:, :, :4].copy(), row[:4].copy())

    (cube, row), (cube_too, row_too) = given(), given()
    flags, flags_too = np.zeros(4, bool), np.zeros(4, bool)
    loop = native_loop(plain.parts)
    found, expected = loop(cube, row, flags), plain.parts(cube_too, row_too, flags_too)
    assert found == (int(expected[0]), bool(expected[1]))
    assert (row.tolist(), flags.tolist()) == (row_too.tolist(), flags_too.tolist())
    assert is_native(loop)


def test_a_loop_has_code_for_each_kind_of_arguments():
    loop = native_loop(plain.named)
    for dtype in (np.uint8, np.uint64, np.uint32, np.ulonglong, np.uint8):
        values = np.arange(3).astype(dtype)
        assert loop(plain.Pair(values, 2), np.uint64(0xFF)) == 2 * values.itemsize
        assert values.tolist() == [0xFF, 0xFE, 0xFD]
    # a type of NumPy that has another of its size is that one
    assert len(loop.entries) == 3
    assert is_native(loop)


@pytest.mark.parametrize("shift", [-1, 0, 5])
def test_signs(shift):
    values = np.array(EDGES["uint64"], np.uint64)
    expected = values.copy()
    loop = native_loop(plain.unsigned)
    assert loop(values, abs(shift)) == compiled.njit()(plain.unsigned)(expected, abs(shift))
    assert values.tolist() == expected.tolist()
    assert is_native(loop)


@pytest.mark.parametrize("stop", [0, 1, 3, -2, 5, 9, -9])
def test_several_elements(stop):
    row, narrow = np.arange(5), np.arange(10, dtype=np.int32)[::2]
    row_too, narrow_too = row.copy(), np.arange(10, dtype=np.int32)[::2]
    loop = native_loop(plain.filled)
    assert loop(row, narrow, stop) == plain.filled(row_too, narrow_too, stop)
    assert (row.tolist(), narrow.tolist()) == (row_too.tolist(), narrow_too.tolist())
    assert is_native(loop)


@pytest.mark.parametrize("gaps", [False, True])
def test_what_is_fetched_ahead_changes_nothing(gaps):
    def given():
        rows = np.arange(60, dtype=np.int32).reshape(10, 6)
        return (rows[:, ::2] if gaps else rows), np.arange(20)[::2], np.zeros(10, np.int64)

    loop, *all_given = native_loop(plain.fetched_ahead), given(), given(), given()
    for function, arrays in zip(
        (loop, plain.fetched_ahead, compiled.njit()(plain.fetched_ahead)), all_given, strict=True
    ):
        function(*arrays)
    results = [[array.tolist() for array in arrays] for arrays in all_given]
    assert results[0] == results[1] == results[2]
    assert is_native(loop)


def test_a_division_by_zero_is_python_s():
    loop = native_loop(plain.divided)
    assert loop(7, -2) == -4
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        loop(7, 0)
    assert loop(-(1 << 63), -1) == compiled.njit()(plain.divided)(-(1 << 63), -1)
    assert loop(8, 2) == 4
    assert is_native(loop)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_fractions_are_numbas(dtype):
    edges = [0.0, -0.0, 1.0, -1.0, 2.5, 3.5, np.inf, -np.inf, np.nan, 1e300]
    values = np.array(edges if dtype is np.float64 else EDGES[dtype.__name__], dtype)
    a, b = (side.ravel() for side in np.meshgrid(values, values, indexing="ij"))
    found, expected = np.zeros((6, a.size)), np.zeros((6, a.size))
    loop = native_loop(plain.quotients)
    loop(a, b, found)
    compiled.njit()(plain.quotients)(a, b, expected)
    assert found.tobytes() == expected.tobytes()
    assert is_native(loop)


def test_a_fraction_of_zero_is_python_s():
    loop = native_loop(plain.divided_into_fractions)
    assert (loop(7, 2), loop(7.0, 2)) == (3.5, 3.5)
    for zero in (0, 0.0, -0.0):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            loop(7.0, zero)
    assert loop(1.0, 4.0) == 0.25
    assert is_native(loop)


def test_functions_that_another_function_made():
    values = np.array([0.0, -0.0, 1.5, -2.5, np.inf, np.nan, 4.0])
    found, expected = np.zeros((5, values.size)), np.zeros((5, values.size))
    loop = native_loop(plain.made_elsewhere)
    loop(values, found)
    plain.made_elsewhere(values, expected)
    # whether something that is no number has a sign is nobody's business
    assert np.where(found == found, found, 0.25).tobytes() == np.where(expected == expected, expected, 0.25).tobytes()
    assert is_native(loop)


def test_what_is_kept_by_its_name_has_no_variables_of_others():
    """Two functions of one text would be taken for each other."""
    first, second = (native_loop(plain.plus(shift)) for shift in (1, 2))
    assert (first(3), second(3)) == (4, 5)
    assert not is_native(first)


@pytest.mark.parametrize(
    ("function", "message"),
    [(plain.adding, "a function within the lambda"), (plain.too_early(), "has no value yet")],
)
def test_functions_that_are_not_plain(function, message):
    with pytest.raises(NotPlain, match=message):
        Module().called(function, (INT,))


def test_a_lambda_that_nobody_knows_the_place_of_is_not_taken_for_another():
    made = plain.made_with(3.0, 2)[0]
    without = FunctionType(made.__code__.replace(co_linetable=b""), made.__globals__, None, None, made.__closure__)
    with pytest.raises(NotPlain, match="nothing says which lambda"):
        Module().called(without, (FLOAT,))
    assert Module().called(made, (FLOAT,)).result == FLOAT


@pytest.mark.parametrize("which", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 9, -1, -9])
def test_parts_of_tables_and_tuples(which, first):
    def called(function):
        table, out = np.arange(6).reshape(2, 3), np.zeros(4, np.int64)
        columns = tuple(np.arange(2, dtype=np.int32) + 10 * number for number in range(3))
        return int(function(table, columns, which, first, out)), table.tolist(), out.tolist()

    loop = native_loop(plain.rows)
    assert called(loop) == called(plain.rows)
    assert is_native(loop)


@pytest.mark.parametrize(("function", "given", "result"), [(plain.with_room, 5, 5.0), (plain.two_kinds, True, 0.5)])
def test_what_is_not_plain_is_left_to_numba(function, given, result):
    loop = native_loop(function)
    loop.by_numba = compiled.njit()(function)
    assert loop(given) == result
    assert not loop.entries


def test_numbers_that_no_kind_has_are_left_to_numba():
    loop = native_loop(plain.divided)
    assert loop(np.uint64(1 << 63), np.uint64(2)) == 1 << 62
    assert loop(1 << 63, 2) == compiled.njit()(plain.divided)(1 << 63, 2)


def test_constants_of_narrow_types_keep_their_sign():
    values = np.array([-1000, -91, -90, -20, -5, 0, 1000])
    for function in (plain.wide_again, plain.by_address):
        found, expected = np.zeros((2, len(values)), np.int64)
        loop = native_loop(function)
        loop(values, found)
        assert is_native(loop)
        function(values, expected)
        assert found.tolist() == expected.tolist()
