"""Functions of the plain part of Python, one for each thing that it has."""

from typing import NamedTuple

import numpy as np

from kernbench.common.compiled import prefetch

SIZES = (3, 5)
BIG = np.uint64(1 << 63)


class Pair(NamedTuple):
    """A tuple with names."""

    first: object
    second: object


def whole(a, b, out):
    """Arithmetic on whole numbers, a row of `out` for each operator."""
    for i in range(a.size):
        x, y = a[i], b[i]
        out[0, i] = x + y
        out[1, i] = x - y
        out[2, i] = x * y
        out[3, i] = x & y
        out[4, i] = x | y
        out[5, i] = x ^ y
        out[6, i] = x << (y & 31)
        out[7, i] = x >> (y & 31)
        out[8, i] = -x
        out[9, i] = ~x
        out[10, i] = (x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y)
        if y != 0:
            out[11, i] = x // y
            out[12, i] = x % y
        out[13, i] = np.int64(np.uint32(x)) + np.int64(np.int8(y))


def either(a, b, out):
    """and/or of numbers, and variables that are changed."""
    for i in range(a.size):
        x, y = a[i], b[i]
        out[0, i] = (x > y and y) or x
        exempt = (i > 3 and x and y == 7) or x == 1
        out[1, i] = 1 if exempt else 2
        x += y
        out[2, i] = x


def floating(a, b, out):
    """Arithmetic and comparisons of numbers with fractions."""
    for i in range(a.size):
        x, y = a[i], b[i]
        out[0, i] = x + y
        out[1, i] = x - y
        out[2, i] = x * y
        out[3, i] = np.float64(x < y) + 2.0 * (x == y) + 4.0 * (x != y) + 8.0 * (x >= y)
        out[4, i] = np.float32(x)
        out[5, i] = x + i


def _split(value, by):
    if by == 0:
        return 0, value
    return value // by, value % by


def _total(pair, scale):
    return pair.first * scale + pair.second


def loops(rows, columns, out):
    """Loops, their jumps, and calls."""
    count = 0
    for i in range(2, rows, 3):
        for j in range(columns, -1, -2):
            if j == 1:
                continue
            count += i * j
            if count > 1000:
                break
    step = 2 if rows > 4 else -2
    for k in range(0, 3 * step, step):
        out[0] += k
    left = rows
    while True:
        left -= 1
        if left <= 0 or not 0 < left < 100:
            break
        quotient, rest = _split(left, columns)
        out[1] += quotient * rest
    for value in out:
        count += value
    for extra in (7, 11, 13):
        count ^= extra
    return count, len(SIZES) + SIZES[1], _total(Pair(left, rows), np.int64(3))


def parts(cube, row, flags):
    """Arrays: rows of rows, gaps, indices from the end, truth values."""
    total = 0
    for i in range(cube.shape[0]):
        plane = cube[i]
        total += plane[-1, 0] + cube[i, 1][i] + row[-i] + plane.size + cube.ndim + len(row)
        flags[i] = plane[0, 0] > 2
        total += flags[i]
    row[0], row[1] = row[1], row[0]
    row[-1] += total
    return total, flags[0] and not flags[1]


def named(given, wide):
    """A tuple with names among the arguments, and the type of elements as a function."""
    kind = given.first.dtype.type
    for i in range(given.first.size):
        given.first[i] = kind(wide) ^ given.first[i]
    return given.second * given.first.itemsize


def unsigned(values, shift):
    """Numbers with 64 bits and no sign, compared with such that have one."""
    below = 0
    for i in range(values.size):
        below += values[i] < shift
        below += 8 * (shift > values[i])
        below += 64 * (values[i] == shift)
        values[i] = (values[i] >> np.uint64(shift)) | BIG
    for j in range(np.uint64(values.size)):
        below += max(np.int64(values[j] & np.uint64(7)), min(3, shift))
    return below


def filled(row, narrow, stop):
    """Several elements at once."""
    row[:] = 7
    narrow[:stop] = -1
    row[: stop - 1] = stop
    return row[0] + narrow[-1]


def fetched_ahead(rows, row, out):
    """Elements that will be needed are asked for, which changes nothing."""
    for i in range(rows.shape[0]):
        if i + 2 < rows.shape[0]:
            prefetch(rows, i + 2, rows.shape[1] - 1)
            prefetch(row, i + 2)
        for j in range(rows.shape[1]):
            rows[i, j] += row[i]
        out[i] = rows[i, 0] - row[i]


def divided(a, b):
    """A division whose divisor may be zero."""
    return a // b


def with_room(count):
    """Not plain: it makes an array."""
    room = np.zeros(count)
    room[0] = count
    return room.sum()


def two_kinds(flag):
    """Not plain: a variable has two kinds."""
    value = 1
    if flag:
        value = 0.5
    return value


def quotients(a, b, out):
    """Divisions that give fractions, the larger and smaller of numbers with fractions, and what is left without one."""
    for i in range(a.size):
        x, y = a[i], b[i]
        if y != 0:
            out[0, i] = x / y
        out[1, i] = max(np.float64(x), np.float64(y))
        out[2, i] = min(np.float64(x), np.float64(y), 1.5)
        out[3, i] = np.ceil(np.float64(x) * 0.3)
        out[4, i] = np.floor(np.float64(x) * 0.3)
        out[5, i] = np.trunc(np.float64(x) * 0.3)


def divided_into_fractions(a, b):
    """A fraction."""
    return a / b


def _last(row):
    return row[len(row) - 1] if len(row) else -1


def rows(table, columns, which, first, out):
    """Rows of a table as variables, columns by a number that is known only when it runs, what is left of a row."""
    one, two = table
    out[0] = one[0] + two[1]
    out[1] = columns[which][1]
    for column in columns:
        out[1] += column[0]
    out[2] = _last(table[1, first:])
    out[3] = len(table[first:])
    table[:] = 7
    return np.uint64(0x9E37_79B9_7F4A_7C15) >> np.uint64(1)


def made_with(factor, shift):
    """Functions with variables of the one around them; two lambdas stand in one line."""
    double, shifted = lambda x: x * 2.0 * factor, lambda x: -x + shift

    def both(x):
        return double(x) if x > 0.0 else shifted(x)

    return double, shifted, both, lambda x: np.sqrt(abs(x)) if x == x else factor


_DOUBLE, _SHIFTED, _BOTH, _ROOT = made_with(3.0, 2)
_OTHERS = made_with(0.5, 7)
_OTHER = _OTHERS[2]


def made_elsewhere(values, out):
    """Calls of functions that another function made."""
    for i in range(len(values)):
        x = values[i]
        out[0, i], out[1, i], out[2, i] = _DOUBLE(x), _SHIFTED(x), _BOTH(x)
        out[3, i], out[4, i] = _ROOT(x), _OTHER(x)


def plus(shift):
    """A function that has one variable of another function."""

    def shifted(x):
        return x + shift

    return shifted


_ADDING = lambda x: lambda y: x + y  # noqa: E731


def adding(x):
    """A call of a function that gives another one."""
    return _ADDING(x)(1)


def too_early():
    """A function one of whose variables has no value yet."""

    def early(x):
        return x + later

    loop = early
    if loop is None:
        later = 1
    return loop


def wide_again(values, out):
    """Constants of narrow types keep their sign and value where they meet wide numbers."""
    for i in range(values.size):
        out[i] = max(min(values[i], np.int32(-5)), np.int32(-90)) + np.int8(-3) + np.uint8(250)


def by_address(values, out):
    """The lengths of arrays by address, and buffers on the stack, are not known to Python."""
    for i in range(values.size):
        out[i] = 7 // 2 + 7 % 4 + values[i]
