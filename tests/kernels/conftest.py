"""Kernels that a file has built are let go with it: each takes 10 MB with its program."""

from collections.abc import Iterator

import pytest
from tests.kernels import built


@pytest.fixture(autouse=True, scope="module")
def kernels_of_a_file() -> Iterator[None]:
    yield
    built.forget()
