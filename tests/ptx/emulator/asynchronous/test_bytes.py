"""A phase to which all have arrived, and whose bytes are not those of its copies: the deadlock says which."""

import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds


@pytest.mark.parametrize("bytes_", [4112, 8192])
def test_bytes_that_never_come(bench, bytes_):
    run = bench.pipe(("[%r9], 4096", f"[%r9], {bytes_}"))
    assert kinds(run) == ["deadlock", "transaction-bytes"]
    message = next(finding.message for finding in run.findings if finding.kind == "transaction-bytes")
    assert "all have arrived for phase 0 of mbarrier 'full'+0" in message
    assert f"it expects {bytes_} bytes, 4096 are delivered, and no copy is under way" in message


def test_a_copy_too_many(bench):
    run = bench.pipe(("[%r9], 4096", "[%r9], 4080"))
    message = next(finding.message for finding in run.findings if finding.kind == "transaction-bytes")
    assert "it expects 4080 bytes, 4096 are delivered" in message


def test_other_deadlocks_say_nothing_of_bytes(bench):
    run = bench.pipe(("  @!%p4 mbarrier.arrive.shared::cta.b64 _, [%r10];\n", ""))
    assert kinds(run) == ["deadlock"]
