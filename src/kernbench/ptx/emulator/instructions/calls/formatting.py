"""printf as in C: a format, and consecutive values in memory."""

import math
import re
import struct
from collections.abc import Callable

_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_SIZES = {"hh": 8, "h": 16, "": 32, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}

# returns the next value for a struct code, and the string at an address
Next = Callable[[str], int | float]
Text = Callable[[int], bytes]


def formatted(layout: bytes, following: Next, text: Text) -> tuple[bytes, int]:
    """The text, and how many values it used."""
    taken = 0

    def value(code: str) -> int | float:
        nonlocal taken
        taken += 1
        return following(code)

    def convert(match: re.Match[bytes]) -> bytes:
        flags, width, precision, length, letter = (
            part.decode() if part is not None else None for part in match.groups()
        )
        assert flags is not None
        assert width is not None
        assert letter is not None
        if letter == "%":
            return b"%"
        wide = int(value("i")) if width == "*" else int(width or 0)
        if wide < 0:
            flags, wide = flags + "-", -wide
        exact = int(value("i")) if precision == "*" else None if precision is None else int(precision or 0)
        exact = None if exact is not None and exact < 0 else exact
        return _padded(*_converted(letter, length or "", flags, exact, value, text), flags, wide)

    return _CONVERSION.sub(convert, layout), taken


def _converted(
    letter: str, length: str, flags: str, exact: int | None, value: Next, text: Text
) -> tuple[bytes, bytes, bool]:
    """Sign or prefix, digits, and whether zeros may be padded between the two."""
    if letter in "eEfFgGaA":
        return _float(float(value("d")), letter, flags, exact)
    if letter == "s":
        return b"", text(int(value("Q")))[:exact], False
    if letter == "c":
        return b"", bytes([int(value("i")) & 0xFF]), False
    if letter == "p":
        return b"", b"0x%x" % int(value("Q")), False
    if letter == "n":
        value("Q")
        return b"", b"", False
    return _integer(letter, length, flags, exact, value)


def _integer(letter: str, length: str, flags: str, exact: int | None, value: Next) -> tuple[bytes, bytes, bool]:
    bits = _SIZES.get(length, 32)
    number = int(value("Q" if bits == 64 else "I")) & ((1 << bits) - 1)
    sign = b""
    if letter in "di":
        number -= (number >> bits - 1) << bits
        sign = b"-" if number < 0 else b"+" if "+" in flags else b" " if " " in flags else b""
        number = abs(number)
    digits = format(number, {"o": "o", "x": "x", "X": "X"}.get(letter, "d")).encode()
    if exact is not None:
        digits = b"" if exact == 0 and number == 0 else digits.rjust(exact, b"0")
    if "#" in flags and letter in "xX" and number:
        sign = b"0" + letter.encode()
    if "#" in flags and letter == "o" and not digits.startswith(b"0"):
        digits = b"0" + digits
    return sign, digits, exact is None


def _float(number: float, letter: str, flags: str, exact: int | None) -> tuple[bytes, bytes, bool]:
    negative = math.copysign(1.0, number) < 0
    sign = b"-" if negative else b"+" if "+" in flags else b" " if " " in flags else b""
    size = abs(number)
    if math.isinf(size) or math.isnan(size):
        digits = b"inf" if math.isinf(size) else b"nan"
        return sign, digits.upper() if letter.isupper() else digits, False
    if letter in "aA":
        digits = _hexadecimal(size, exact)
        return sign, digits.upper() if letter == "A" else digits, False
    shape = f"%{'#' if '#' in flags else ''}.{6 if exact is None else exact}{letter}"
    return sign, (shape % size).encode(), True


def _hexadecimal(size: float, exact: int | None) -> bytes:
    """C's %a: a mantissa of one digit and a fraction, without trailing zeros unless a precision is given."""
    bits: int = struct.unpack("<Q", struct.pack("<d", size))[0]
    exponent, fraction = bits >> 52, bits & ((1 << 52) - 1)
    mantissa = fraction | (1 << 52 if exponent else 0)
    power = 0 if not mantissa else max(exponent, 1) - 1023
    digits = 13
    if exact is not None and exact < digits:
        shift = 4 * (digits - exact)
        half, rest = 1 << shift - 1, mantissa & ((1 << shift) - 1)
        mantissa >>= shift
        mantissa += rest > half or (rest == half and mantissa & 1)
        digits = exact
    first, tail = mantissa >> 4 * digits, mantissa & ((1 << 4 * digits) - 1)
    text = format(tail, f"0{digits}x") if digits else ""
    text = text.rstrip("0") if exact is None else text.ljust(exact, "0")
    return f"0x{first:x}{'.' if text else ''}{text}p{power:+d}".encode()


def _padded(sign: bytes, digits: bytes, zeros: bool, flags: str, wide: int) -> bytes:
    if "-" in flags:
        return (sign + digits).ljust(wide)
    if "0" in flags and zeros:
        return sign + digits.rjust(wide - len(sign), b"0")
    return (sign + digits).rjust(wide)
