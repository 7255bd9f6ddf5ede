"""Files to write are checked beforehand, and the check leaves nothing behind."""

import pytest

from kernbench.common.errors import BenchError
from kernbench.sweep.targets import check_targets


def test_good_files_pass_and_nothing_is_left(tmp_path):
    check_targets({"--out": tmp_path / "a", "--parquet": None, "--plot": tmp_path / "b"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "is a folder: choose another file"),
        ("none/a.csv", "there is no folder .*none to write it to; make it first"),
        ("/proc/a.csv", "cannot be written"),
        ("/dev/null", "is no ordinary file"),
        ("x" * 300, "cannot be written"),
        ("loop", "cannot be written"),
    ],
)
def test_bad_files(tmp_path, name, words):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BenchError, match=f"--out .*{words}"):
        check_targets({"--out": tmp_path / name})


def test_one_file_for_two_purposes(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "hard").hardlink_to(tmp_path / "a")
    for other in ("a", "./a", "link", "hard"):
        with pytest.raises(BenchError, match="--out and --plot both name"):
            check_targets({"--out": tmp_path / "a", "--parquet": None, "--plot": tmp_path / other})
