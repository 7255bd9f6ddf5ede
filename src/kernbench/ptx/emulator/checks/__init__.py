"""Checks."""
from typing import Any
CHECKED: tuple[str, ...] = ()
class Checks:
    def __init__(self, *a: Any): ...
