import pytest

from kernbench import ptx


@pytest.fixture
def emulated(tmp_path, monkeypatch):
    """Opens an emulated GPU for the rest of the test: its session."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    opened = []

    def open_one(arch="sm_90a", **options):
        opened.append(ptx.emulated(arch, **options))
        return opened[-1].__enter__()

    yield open_one
    for context in reversed(opened):
        context.__exit__(None, None, None)
