"""LZ4 blocks, in which older compilers compress the PTX of fat binaries: a token, literals, then a match copy."""

from kernbench.ptx.doors.driver.images.errors import ImageError

_LEAST_MATCH = 4


def decompress(data: bytes, size: int) -> bytes:
    """The `size` bytes of an LZ4 block."""
    out, at = bytearray(), 0
    try:
        while at < len(data) and len(out) < size:
            token = data[at]
            count, at = _length(data, at + 1, token >> 4)
            out += data[at : at + count]
            at += count
            if at >= len(data) or len(out) >= size:
                break
            distance = data[at] | data[at + 1] << 8
            count, at = _length(data, at + 2, token & 15)
            copy_match(out, distance, count + _LEAST_MATCH)
    except IndexError:
        raise ImageError("compressed PTX of a fat binary is cut off") from None
    if len(out) != size:
        raise ImageError(f"compressed PTX of a fat binary gave {len(out)} bytes instead of {size}")
    return bytes(out)


def _length(data: bytes, at: int, start: int) -> tuple[int, int]:
    """A length; if its four bits are all ones it continues in bytes, until one is not 255."""
    if start < 15:
        return start, at
    while True:
        start += data[at]
        at += 1
        if data[at - 1] != 255:
            return start, at


def copy_match(out: bytearray, distance: int, count: int) -> None:
    """Append `count` bytes from `distance` back; source and destination may overlap."""
    if not 0 < distance <= len(out):
        raise ImageError(f"compressed PTX of a fat binary copies from {distance} bytes back, of {len(out)}")
    start = len(out) - distance
    if distance >= count:
        out += out[start : start + count]
        return
    pattern = bytes(out[start:])
    out += (pattern * (count // distance + 1))[:count]
