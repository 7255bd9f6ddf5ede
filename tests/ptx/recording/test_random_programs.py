"""Recordings of random programs: the same whatever runs together, and what the reference executor counts."""

from collections import Counter, defaultdict
from dataclasses import fields

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import program_of
from kernbench.ptx.emulator.engine import launch
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events
from kernbench.ptx.reference.instructions import steps_of
from kernbench.ptx.reference.machine import Machine
from kernbench.ptx.reference.programs import safe_program

# what follows from the order in which CTAs run
OF_ORDER = {"spun", "first", "other", "own", "other_distance", "own_distance", "stored"}
# where single lanes spin on flags of other blocks, the others of their warp may have gone on without them, or not yet
SEEDS = [seed for seed in range(sampled.examples(8, 12)) if "flags" not in safe_program(seed).kinds] + [910258, 930025]


def kernel_of(program):
    return ptx.parse(program.text).kernels["kernel"]


def recording_of(program, schedule="canonical"):
    device = ptx.EmulatedDevice("sm_90a")
    args = [device.array(array) for array in program.arrays()]
    shape = (program.grid, program.block, args)
    run = device.launch(kernel_of(program), *shape, schedule=schedule, record=True, cluster=program.cluster)
    assert run.findings == []
    return run.recording


def columns(recording):
    """All that does not follow from the order in which CTAs run."""
    found = {"cta_class": recording.cta_class, "class_trace": recording.class_trace}
    for name in ("start", "block", "lanes", "first_event"):
        found[f"traces.{name}"] = getattr(recording.traces, name)
    for field in fields(Events):
        if field.name not in OF_ORDER:
            found[f"events.{field.name}"] = getattr(recording.events, field.name)
    return found


def differences(one, two):
    return [name for name, column in columns(one).items() if not np.array_equal(column, columns(two)[name])]


@pytest.mark.parametrize("seed", SEEDS)
def test_recordings_do_not_depend_on_the_schedule(seed):
    program = safe_program(seed)
    first = recording_of(program)
    for schedule in ("reversed", "eager", 5):
        assert differences(first, recording_of(program, schedule)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_recordings_do_not_depend_on_what_runs_together(seed, monkeypatch):
    """With batches of one CTA, or of one cluster, nothing of different CTAs is run by one instruction."""
    program = safe_program(seed)
    together = recording_of(program)
    monkeypatch.setattr(launch, "_LANES", 1)
    assert differences(together, recording_of(program)) == []


def reference(program):
    """How often lanes ran each line, by block and warp; and the accesses of each thread by line, in their order."""
    kernel = kernel_of(program)
    machine = Machine(kernel, program.grid, program.block, program.arrays(), None, program.cluster)
    ran, accesses = Counter(), defaultdict(list)

    def counted(step, line):
        def run(thread):
            ran[thread.cta, thread.warp, line] += 1
            return step(thread)

        return run

    def note(party, space, address, nbytes, writes, scope, same, line):
        accesses[party.number, line].append((space, address, nbytes))
        return plain(party, space, address, nbytes, writes, scope, same, line)

    plain, machine.note = machine.note, note
    steps = steps_of(machine)
    lines = [instruction.line for instruction in machine.program.instructions]
    machine.steps = [*(counted(step, line) for step, line in zip(steps[:-1], lines, strict=True)), steps[-1]]
    assert machine.run() == "finished"
    return ran, accesses


def polling_lines(kernel):
    """Lines of loops that ask again and again, and how often depends on the order of threads."""
    blocks = program_of(kernel).blocks
    loops = [block.wait_loop for block in blocks if block.wait_loop is not None]
    asking = [one for one in loops if one.waits or any(s.effects.polls for b in one.blocks for s in blocks[b].sites)]
    return {site.line for loop in asking for block in loop.blocks for site in blocks[block].sites}


def warps_of(recording):
    """Block, warp, steps and events of each warp."""
    for cta, kind in enumerate(recording.cta_class):
        for warp in range(recording.warps):
            yield cta, warp, recording.steps(kind, warp), recording.events_of(kind, warp)


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_warps_run_what_the_reference_counts(seed):
    program = safe_program(seed)
    recording, (ran, _) = recording_of(program), reference(program)
    instructions, polling = recording.instructions, polling_lines(kernel_of(program))
    found = Counter()
    for cta, warp, steps, _ in warps_of(recording):
        for step in steps:
            for one in instructions.of_block(int(recording.traces.block[step])):
                found[cta, warp, int(instructions.line[one])] += int(recording.traces.lanes[step])
    for key in ran.keys() | found.keys():
        assert found[key] <= ran[key], key
        assert found[key] == ran[key] or key[2] in polling, key


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_accesses_are_those_of_the_reference(seed):
    """Lines that all lanes of a warp which ran them ran equally often: the n-th access of each is one event."""
    program = safe_program(seed)
    recording, (_, accesses) = recording_of(program), reference(program)
    polling, compared = polling_lines(kernel_of(program)), 0
    for cta, warp, _, events in warps_of(recording):
        threads = range(cta * program.block + 32 * warp, cta * program.block + min(program.block, 32 * warp + 32))
        by_line = defaultdict(list)
        for number in events:
            by_line[recording.event(number).line].append(recording.event(number))
        for line, found in by_line.items():
            of_lanes = [accesses[thread, line] for thread in threads if accesses[thread, line]]
            plain = found[0].kind in (Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE)
            if line in polling or not plain or {len(one) for one in of_lanes} != {len(found)}:
                continue
            for number, event in enumerate(found):
                touched = {address // 32 for one in of_lanes for _, address, _ in one[number : number + 1]}
                assert (event.lanes, event.sectors) == (len(of_lanes), len(touched)), (line, number)
                compared += 1
    assert compared
