"""The command line as a person meets it, in this process: exit code, output and errors of `kernbench ...`."""

import sys
from types import SimpleNamespace

import pytest

from kernbench.cli import main


@pytest.fixture
def kernbench(monkeypatch, capsys):
    """Runs a command line through the entry point, in the folder the test is in."""
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kernbench", *arguments])
        capsys.readouterr()
        # standard output of the process, which a document has for itself
        monkeypatch.setattr(sys, "__stdout__", sys.stdout)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code or 0, stdout=out, stderr=err)

    return run
