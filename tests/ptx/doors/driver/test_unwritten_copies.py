"""Copies to the host of device memory that nobody wrote: a finding; of what is written, or is padding: none."""

import pytest
from tests.ptx.doors.kernels import ADD_ONE, word

from kernbench.ptx.doors.driver.requests import Request, Result
from kernbench.ptx.doors.driver.service import DriverService
from kernbench.ptx.doors.summary import read_session

DEVICE, PINNED, MANAGED = 1, 2, 3
HOST = 0x7FFF00001000
THREAD = 7


class Program:
    """The calls of a program, on the service of its process or of another one."""

    def __init__(self, session, shared=False):
        self.session, self.service = session, DriverService(session, shared=shared)

    def allocate(self, nbytes, kind=DEVICE):
        return self.service.answer(Request.ALLOCATE, (nbytes, kind), b"").words[0]

    def fill(self, address, nbytes):
        assert self.service.answer(Request.SET, (address, nbytes, nbytes, 1), b"").result == Result.SUCCESS

    def copy(self, to, source, nbytes, height=1, pitch=None):
        pitch = pitch or nbytes
        words = (to, nbytes, nbytes, source, pitch, pitch, nbytes, height, 1, 0)
        answer = self.service.answer(Request.COPY, words, b"")
        assert answer.result == Result.SUCCESS
        return answer.words

    def add_one(self, x, y, n, blocks):
        kernel = self.session.load(ADD_ONE).kernel("add_one")
        self.session.launch(kernel, blocks, 64, [word(x), word(y), word(n, 4)])


@pytest.fixture
def program(session_of):
    return Program(session_of())


def test_what_no_block_wrote_is_found_where_it_is_copied_to_the_host(program):
    x, y = program.allocate(400), program.allocate(400)
    program.fill(x, 400)
    program.add_one(x, y, 100, blocks=1)
    assert program.copy(HOST, y, 400) == ()
    assert program.copy(HOST, y, 400) == ()
    (found,) = program.session.findings
    assert found.kind == "uninitialised-read"
    assert found.where.file == __file__
    (made,) = (other.where for other in found.others if other.role == "made")
    assert made.text.startswith("return self.service.answer(Request.ALLOCATE")
    assert found.message == (
        f"allocation 2 (test_unwritten_copies.py:{made.line}) is copied to the host, and nobody wrote 144 of the 400 "
        "bytes (the first is byte 256 of 400)"
    )
    assert "'add_one' (grid 1) wrote 256 of its 400 bytes" in found.hint
    assert "cudaMemset" in found.hint


def test_the_part_that_was_written_is_no_finding(program):
    x, y = program.allocate(400), program.allocate(400)
    program.fill(x, 400)
    program.add_one(x, y, 100, blocks=1)
    program.copy(HOST, y, 256)
    program.copy(HOST, x, 400)
    program.copy(HOST, program.allocate(400, MANAGED), 400)
    program.copy(HOST, program.allocate(400, PINNED), 400)
    # rows of which each has bytes behind its end
    program.fill(y, 96)
    program.copy(HOST, y, 96, height=1, pitch=128)
    program.session.assert_safe()


@pytest.mark.parametrize(("hole", "findings"), [(4, 0), (15, 0), (16, 1)])
def test_padding_of_structures_is_no_finding(program, hole, findings):
    x = program.allocate(320)
    for at in range(0, 320, 32):
        program.fill(x + at, 32 - hole)
    program.copy(HOST, x, 320)
    assert len(program.session.findings) == findings


def test_copies_on_the_device_carry_along_what_nobody_wrote(program):
    x, y, z = (program.allocate(400) for _ in range(3))
    program.fill(x, 400)
    program.add_one(x, y, 100, blocks=2)
    program.fill(z, 256)
    program.copy(y, z, 400)
    assert program.session.findings == []
    program.copy(HOST, y, 400)
    (found,) = program.session.findings
    assert "nobody wrote 144 of the 400 bytes" in found.message
    assert "all of it was written: what nobody wrote came later, with a copy of other memory" in found.hint


def test_pinned_memory_is_the_hosts(program):
    x, pinned = program.allocate(400), program.allocate(400, PINNED)
    program.copy(pinned, x, 400)
    assert len(program.session.findings) == 1
    # the host writes it without a call
    y = program.allocate(400)
    program.copy(y, pinned, 400)
    program.copy(HOST, y, 400)
    assert len(program.session.findings) == 1


def test_of_another_process_the_verdict_has_it_although_the_call_succeeded(session_of, tmp_path):
    """There is no error that the program could ask for, so none that it asks for makes the finding go away."""
    program = Program(session_of(tmp_path), shared=True)
    x = program.allocate(400)
    (number,) = program.copy(HOST, x, 400)
    program.service.answer(Request.CALLER, (number, THREAD, 0, 0), b"")
    program.service.answer(Request.ERROR_SEEN, (THREAD,), b"")
    summary = read_session(tmp_path)
    (host,) = summary.kernels
    assert [(one.kind, one.where) for one in host.findings] == [("uninitialised-read", None)]
    assert (summary.safe, summary.headline, host.verdict) == (False, "1 finding", "uninitialised-read")
    assert "no launch had it as an argument" in host.findings[0].hint


def test_nothing_is_found_where_nothing_is_checked(session_of):
    program = Program(session_of(checks=False))
    program.copy(HOST, program.allocate(400), 400)
    program.session.assert_safe()
