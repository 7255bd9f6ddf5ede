"""What a document shows against what a program printed: word for word, but for figures that rounding makes.

How the last digits come out depends on the order in which a processor's BLAS adds, and on its `exp`. So an error (a
number in scientific notation, or after the word "error") is compared by magnitude: within a factor of ten, and zero
stays zero. A value that a kernel computed (a decimal of five significant digits or more) is compared to one per cent.
Every other number (a count, a time, a share) is the same on every machine, and is compared digit by digit.
"""

import math
import re

MAGNITUDE = 10.0
PER_CENT = 1.01
_NUMBER = r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)"
_SCIENTIFIC = r"(?<![\w.,])[-+]?\d(?:\.\d+)?e[-+]\d+(?![\w.])"
_AFTER_ERROR = r"(?<=\berror )\d+(?:\.\d+)?(?![\w.])"
# zeros in front of the first digit are not significant
_VALUE = r"(?<![\w.,])[-+]?(?=[\d.]*[1-9](?:\.?\d){4})\d+\.\d+(?![\w.])"
_FIGURE = re.compile(f"({_SCIENTIFIC}|{_AFTER_ERROR})|({_VALUE})")


def agree(shown: str, printed: str, factor: float) -> bool:
    """Whether two figures have one sign and differ by `factor` at most; zero, inf and nan match only themselves."""
    a, b = float(shown), float(printed)
    if not (math.isfinite(a) and math.isfinite(b) and a and b):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a * b > 0 and 1 / factor <= a / b <= factor


def find_shown(shown: str, printed: str, start: int = 0) -> tuple[int, int] | None:
    """Where in `printed`, from `start` on, the text `shown` stands, by the rules above."""
    pattern, figures, end = "", [], 0
    for figure in _FIGURE.finditer(shown):
        pattern += re.escape(shown[end : figure.start()]) + f"({_NUMBER})"
        figures.append((figure[0], MAGNITUDE if figure[1] else PER_CENT))
        end = figure.end()
    for match in re.compile(pattern + re.escape(shown[end:])).finditer(printed, start):
        if all(agree(text, found, factor) for (text, factor), found in zip(figures, match.groups(), strict=True)):
            return match.span()
    return None
