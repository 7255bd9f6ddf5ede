"""The way of one PTX instruction from text to finding: the folders that handle it, and how often it comes back to one.

    python tools/instruction_way.py [--steps]

A kernel of one store that races is parsed, decoded, analysed, assembled, run and reported. A profile function sees
every call of a function under `kernbench/ptx`. A call *handles* the store if one of its arguments or free variables
is the store: its parsed instruction, what it was decoded to, its site (anything with the store's line, or with an
`instruction` or a `site` that has it), or the finding of it; and so does a call that gives such a thing back. The
folders of these calls, in the order in which they begin, are the way. A *stay* is a run of calls in one folder, and a
stay in a folder that the way had left before is a *return*. Going back to a caller, when a call ends, is none:
nothing is handed over; nor is a method of the instruction itself, which it is asked for wherever it is. The same is
counted for modules: of a version in which all of them lie in one folder, that is what can be compared.

The tool needs nothing but `kernbench.ptx`, so that it runs on older versions: put their `src` on PYTHONPATH.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count, groupby
from pathlib import Path
from types import FrameType, FunctionType

import numpy as np

from kernbench import ptx

STORE = "st.global.u32 [%rd0], %r0;"
TEXT = f""".version 7.0
.target sm_80
.address_size 64
.visible .entry racing(.param .u64 out)
{{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  {STORE}
  ret;
}}
"""
LINE = next(number for number, line in enumerate(TEXT.splitlines(), 1) if STORE in line)
ROOT = Path(ptx.__file__).parent
_LAUNCHES = count()
# what leads from a thing to the instruction it is about
_ABOUT = ("instruction", "site", "where", "place")

_PLAIN = (int, float, str, bytes, tuple, list, dict, np.ndarray, np.generic, FunctionType, type)


def is_store(value: object) -> bool:
    """Whether a value is the store, in one of the forms it takes on its way."""
    if isinstance(
        value, int | float | str | bytes | tuple | list | dict | np.ndarray | np.generic | FunctionType | type
    ):
        return False
    return _line(value) == LINE or any(_line(_part(value, name)) == LINE for name in _ABOUT)


def _part(value: object, name: str) -> object:
    """An attribute that is there already: none is computed for this."""
    held = getattr(value, "__dict__", None)
    if held is not None and name in held:
        return held[name]
    return getattr(value, name, None) if name in getattr(type(value), "__slots__", ()) else None


def _line(value: object) -> object:
    return None if value is None or isinstance(value, type) else _part(value, "line")


class Way:
    """The calls that handle the store, as a profile function sees them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._begun = 0
        self._seen: dict[int, tuple[str, str]] = {}

    def __call__(self, frame: FrameType, event: str, given: object) -> None:
        """A call begins or ends."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if not code.co_filename.startswith(str(ROOT)) or code.co_name.startswith("<"):
            return
        module = str(Path(code.co_filename).relative_to(ROOT).with_suffix(""))
        if event == "call":
            self._begun += 1
            self._numbers[id(frame)] = self._begun
            if any(is_store(value) for name, value in frame.f_locals.items() if name != "self"):
                self._seen[self._begun] = (module, code.co_name)
        else:
            number = self._numbers.pop(id(frame), None)
            if number is not None and is_store(given):
                self._seen.setdefault(number, (module, code.co_name))

    def steps(self) -> list[tuple[str, str]]:
        """Module and function of each call, in the order in which they began."""
        return [self._seen[number] for number in sorted(self._seen)]


def run() -> list[tuple[str, str]]:
    """The way of the store; compiled loops are compiled before."""
    launch()
    way = Way()
    sys.setprofile(way)
    try:
        launch()
    finally:
        sys.setprofile(None)
    return way.steps()


def launch() -> None:
    """Parse and run the kernel on a fresh device; its race must be found."""
    device = ptx.EmulatedDevice("sm_80")
    out = device.array(np.zeros(1, np.uint32))
    # text of its own, so that nothing is kept from an earlier launch
    text = TEXT + f"// launch {next(_LAUNCHES)}\n"
    found = device.launch(ptx.parse(text).kernels["racing"], 1, 64, [out]).findings
    assert any(finding.kind == "race" for finding in found), found


def returns(rooms: list[str]) -> tuple[list[str], int]:
    """The stays of a way, and how many of them are in a room that it had left before."""
    stays = [room for room, _ in groupby(rooms)]
    return stays, len(stays) - len(set(stays))


def main(say: Callable[[str], object] = sys.stdout.write) -> None:
    """Count, and say what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", action="store_true", help="show every call of the way")
    options = parser.parse_args()
    steps = run()
    if options.steps:
        for module, name in steps:
            say(f"{module}.{name}\n")
    modules = [module for module, _ in steps]
    for what, rooms in (("folders", [str(Path(module).parent) for module in modules]), ("modules", modules)):
        stays, back = returns(rooms)
        say(f"{len(steps)} calls, {len(stays)} stays in {len(set(stays))} {what}, {back} returns\n")
        for room, times in Counter(stays).most_common(6):
            say(f"  {times - 1:3} to {room}\n")


if __name__ == "__main__":
    main()
