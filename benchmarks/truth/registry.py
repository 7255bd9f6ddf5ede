"""All problems of the truth set, by name."""

from collections.abc import Callable, Mapping

from .eighth_problems import EIGHTH
from .fifth_problems import FIFTH
from .more_problems import MORE
from .newer_problems import NEWER
from .problems import FIRST, Work
from .seventh_problems import SEVENTH
from .sixth_problems import SIXTH

PROBLEMS: Mapping[str, Callable[..., Work]] = {**FIRST, **MORE, **NEWER, **FIFTH, **SIXTH, **SEVENTH, **EIGHTH}
