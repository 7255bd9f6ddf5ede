"""Where the limit on the size of files is reached, that is said, with its value and the remedy."""

import pytest

from kernbench.common.errors import MisuseError
from kernbench.common.files import in_bytes, size_limit, why
from kernbench.result.run import write_bytes

resource = pytest.importorskip("resource", reason="this system has no such limits")


@pytest.fixture
def limited():
    """For a test of this process, which has no larger file open."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_is_too_large_names_the_limit(limited, tmp_path):
    with pytest.raises(
        MisuseError, match=r"File too large: .* have 8 KiB at most \(RLIMIT_FSIZE\): raise .*`ulimit -f`"
    ):
        write_bytes(tmp_path / "page.html", b"x" * (1 << 14))


def test_other_reasons_are_the_systems(limited):
    assert size_limit() == 1 << 13
    assert why(OSError(28, "No space left on device")) == "No space left on device"


@pytest.mark.parametrize(
    ("count", "words"), [(1000, "1,000 bytes"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"), (1 << 44, "16 TiB")]
)
def test_bytes_in_words(count, words):
    assert in_bytes(count) == words
