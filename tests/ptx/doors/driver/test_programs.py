"""Programs over the driver library: what they compute, what is found, and what becomes of those that fork or die."""

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ptx.doors.driver import packed

# 2 * (0 + 1 + ... + 99)
SUM = 9900


@pytest.fixture
def ptx(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(packed.SCALE)
    return path


def test_a_program_runs_and_its_launches_are_recorded(run_program, client, ptx):
    result = run_program(client, ptx)
    assert (result.code, result.out.split()) == (0, [str(SUM)]), result.err
    assert [(launch["title"], launch["grid"], launch["block"]) for launch in result.launches] == [
        ("scale", [2, 1, 1], [64, 1, 1])
    ]
    assert result.findings == []


def test_a_store_beyond_an_array_is_found_and_the_program_goes_on(run_program, client, ptx):
    result = run_program(client, ptx, "over")
    assert result.code == 0, result.err
    assert {finding["kind"] for finding in result.findings} == {"out-of-bounds"}
    assert "'x'" in result.findings[0]["message"]


def test_an_array_is_named_by_its_parameter_without_the_kernels_name(run_program, client, tmp_path):
    path = tmp_path / "long.ptx"
    path.write_text(packed.SCALE.replace("param .u64 x", "param .u64 scale_param_0").replace("[x]", "[scale_param_0]"))
    result = run_program(client, path, "over")
    assert "offset 360 of 'param_0'" in result.findings[0]["message"]


def test_memory_that_is_no_argument_is_named_by_its_allocation(run_program, client, tmp_path):
    """The pointer is taken apart, so that no parameter holds the array's address."""
    path = tmp_path / "apart.ptx"
    load = "ld.param.u64 %d0, [x];"
    assert load in packed.SCALE
    path.write_text(packed.SCALE.replace(load, f"{load}\n    xor.b64 %d0, %d0, 0x8000000000000000;"))
    result = run_program(client, path, "apart")
    assert "'allocation 1'" in result.findings[0]["message"], result.err
    assert "tensor" not in result.findings[0]["hint"]


def test_threads_share_one_gpu(run_program, client, ptx):
    result = run_program(client, ptx, "threads")
    assert result.out.split() == [str(SUM)] * 4, result.err
    assert len(result.launches) == 4


def test_a_graph_is_replayed(run_program, client, ptx):
    result = run_program(client, ptx, "graph")
    assert result.out.split() == [str(4 * SUM)], result.err
    assert len(result.launches) == 3


def test_memory_of_a_graph_stays_while_it_may_be_launched_again(run_program, client, ptx):
    result = run_program(client, ptx, "graph-memory")
    assert result.out.splitlines() == ["7 7", "1", "8 8"], result.err
    assert "freed" not in result.err


def test_processes_that_fork_before_they_use_the_gpu_have_one_each(run_program, client, ptx):
    result = run_program(client, ptx, "fork-first")
    assert sorted(result.out.split()) == [str(SUM), str(SUM), "child"], result.err
    assert len(result.launches) == 2
    assert len({record["process"] for record in result.launches}) == 2


@pytest.mark.parametrize(("how", "says"), [("fork-late", "child 3"), ("fork-init", "child 3 3")])
def test_a_child_of_a_process_that_used_the_gpu_has_none_and_is_told_why(run_program, client, ptx, how, says):
    result = run_program(client, ptx, how)
    assert says in result.out.splitlines()
    assert result.err.count("fork before the first CUDA call") == 1
    assert len(result.launches) == 1


def test_what_was_found_before_a_program_died_is_kept(run_program, client, ptx):
    result = run_program(client, ptx, "die")
    assert result.code == -6
    assert len(result.launches) == 1


def test_calls_that_make_no_sense_get_the_drivers_codes(run_program, client, ptx):
    result = run_program(client, ptx, "bad-calls")
    assert result.out.split() == (
        [
            "copy",
            "1",
            "free",
            "1",
            "again",
            "1",
            "read",
            "1",
            "image",
            "200",
            "kernel",
            "500",
            "handle",
            "400",
            "texture",
            "801",
            "801",
            "mapped",
            "801",
            "node",
            "801",
            "unknown",
            "500",
            "1",
        ]
    ), result.err
    assert result.err.count("cuTexObjectCreate is not emulated") == 1
    # by name, with what next
    assert "textures are not there; read through a pointer" in result.err
    assert "cuMemCreate is not emulated; it returns CUDA_ERROR_NOT_SUPPORTED: virtual memory cannot be" in result.err
    assert "cuGraphConditionalHandleCreate is not emulated" in result.err
    assert "decide on the host and launch one of two graphs" in result.err
    assert "neither PTX nor a fat binary" in result.err
    assert "bytes into allocation " in result.err
    assert "it lies 8 bytes into the memory at 0x" in result.err
    assert "is freed for the second time" in result.err
    assert [one.kind for one in result.of_host] == ["out-of-bounds", "misuse", "misuse", "use-after-free"]


def test_memory_is_freed_by_the_call_for_its_kind(run_program, client, ptx):
    """As with launches, a refusal is the program's own affair where it asks for the error."""
    result = run_program(client, ptx, "wrong-frees")
    assert result.out.split() == ["1"] * 4, result.err
    assert [one.kind for one in result.of_host] == ["misuse", "misuse", "out-of-bounds", "misuse"]
    words = (
        "is pinned memory of the host, and is freed as device memory",
        "is device memory, and is freed as pinned memory of the host",
        "a copy or fill of 16 bytes at 0x0, which is a null pointer",
        "was freed by the reset of the device before",
    )
    assert all(part in one.message for part, one in zip(words, result.of_host, strict=True))
    unknown = "whether it looked at the code that the call returned cannot be seen"
    assert all(unknown in one.hint for one in result.of_host)
    result = run_program(client, ptx, "wrong-frees-asks")
    assert result.out.split() == ["1"] * 4, result.err
    assert (result.of_host, result.refusals_seen) == ([], 4)


COUNT = """.version 8.0
.target sm_80
.address_size 64
.global .u32 total = 5;
.visible .entry count()
{
    .reg .b32 %r;
    atom.global.add.u32 %r, [total], 1;
    ret;
}
"""


def test_a_reset_takes_streams_and_events_along_and_variables_have_their_first_values(run_program, client, tmp_path):
    path = tmp_path / "count.ptx"
    path.write_text(COUNT)
    result = run_program(client, path, "reset")
    # 400: an invalid handle
    assert result.out.splitlines() == ["41", "400 400 400", "400", "37 0 0"], result.err
    assert (result.code, result.findings) == (0, [])


@pytest.mark.parametrize("what", ["read", "write", "memcpy", "threads", "stack"])
def test_the_host_has_no_access_to_device_memory(run_program, client, tmp_path, what):
    """As on a GPU it ends the program; what was found is kept: once for threads that touch it at the same time, at the
    program's line where C's library does it, and however small its stack for signals is."""
    ptx = tmp_path / "count.ptx"
    ptx.write_text(COUNT)
    result = run_program(client, ptx, f"touches-{what}")
    assert (result.out, result.code) == ("5 4 4\n", -signal.SIGSEGV), result.err
    (found,) = result.of_host
    assert found.kind == "misuse"
    assert found.message.startswith("the host accesses 0x")
    assert f"kernbench: {found.message}" in result.err
    assert found.message.endswith("which is memory of the device")
    assert found.hint == "copy it with cudaMemcpy, or allocate it with cudaMallocManaged or cudaMallocHost"
    if found.where is not None:
        line = Path(__file__).with_name("client.c").read_text().splitlines()[found.where.line - 1]
        assert f"touches-{what}" in line


def test_the_host_has_access_to_what_it_shares_with_the_device(run_program, client, tmp_path):
    ptx = tmp_path / "count.ptx"
    ptx.write_text(COUNT)
    result = run_program(client, ptx, "touches")
    assert (result.out, result.code, result.of_host) == ("5 4 4\n", 0, []), result.err


def test_a_signal_that_somebody_sends_ends_the_program_as_ever(run_program, client, tmp_path):
    ptx = tmp_path / "count.ptx"
    ptx.write_text(COUNT)
    result = run_program(client, ptx, "touches-not-but-is-sent-the-signal")
    assert (result.out, result.code, result.of_host) == ("5 4 4\n", -signal.SIGSEGV, []), result.err


def test_a_child_that_touches_device_memory_leaves_its_parents_link_alone(run_program, client, tmp_path):
    ptx = tmp_path / "count.ptx"
    ptx.write_text(COUNT)
    result = run_program(client, ptx, "touches-in-a-child")
    assert (result.out, result.code, result.of_host) == ("5 4 4\n", 0, []), result.err
    assert result.err.count("fork before the first CUDA call") == 1


def test_a_wrong_call_is_found_at_its_line(run_program, client, ptx):
    if shutil.which("addr2line") is None:
        pytest.skip("there is no addr2line")
    found = run_program(client, ptx, "wrong-frees").of_host
    if found[0].where is None:
        pytest.skip("the compiler writes no lines that addr2line reads")
    lines = Path(__file__).with_name("client.c").read_text().splitlines()
    calls = "cuMemFree_v2((uint64_t)pinned)", "cuMemFreeHost((void *)x)", "cuMemcpyHtoD_v2(x, NULL", "cuMemFree_v2(x)"
    assert [(Path(one.where.file).name, one.where.function) for one in found] == [("client.c", "wrong_frees")] * 4
    assert all(call in lines[one.where.line - 1] for call, one in zip(calls, found, strict=True))


def test_kernels_reach_memory_that_the_program_registers(run_program, client, ptx):
    result = run_program(client, ptx, "registered")
    # 2 * (2 * i + 1)
    assert result.out.strip() == "again 712 sum 20000 around -1 100 no more 713", result.err
    assert (result.code, result.findings) == (0, [])


def test_a_block_that_is_too_large_is_refused_with_a_line(run_program, client, ptx):
    """The program gets the driver's code; whether it asks for the code's name decides whose affair it is."""
    result = run_program(client, ptx, "refused")
    assert result.out.split() == ["1"]
    assert "kernbench: 'scale' is refused: block (2048, 1, 1): x is 2048, allowed are 1 to 1024" in result.err
    assert [(launch["status"], "accepted" in launch) for launch in result.launches] == [("refused", False)]
    assert result.refusals_seen == 0
    result = run_program(client, ptx, "refused-asks")
    assert result.out.split() == ["1", "CUDA_ERROR_INVALID_VALUE"]
    assert result.refusals_seen == 1


def test_a_refused_launch_of_a_kernel_that_is_left_out_is_left_out(run_program, client, ptx):
    result = run_program(client, ptx, "refused", skip=["scale"])
    assert [(launch["treatment"], launch["error"]) for launch in result.launches] == [("left out", "")]


def test_a_refused_image_explains_launches_of_its_own_thread_alone(run_program, client, ptx):
    result = run_program(client, ptx, "two-threads")
    assert result.out.split() == ["200", "400", "400"]
    here, there = [launch["error"] for launch in result.launches]
    assert "neither PTX nor a fat binary" in here
    assert there == "the handle is not that of a kernel"


TRAP = """.version 8.0
.target sm_80
.address_size 64
.visible .entry traps()
{
    trap;
}
"""


def test_what_belongs_to_a_context_that_is_lost_cannot_be_given_back(run_program, client, tmp_path):
    path = tmp_path / "trap.ptx"
    path.write_text(TRAP)
    result = run_program(client, path, "lost")
    assert result.out.split() == ["719"] * 5, result.err


ENDLESS = """.version 8.0
.target sm_80
.address_size 64
.global .u32 flag;
.visible .entry waits(.param .u64 running)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
again:
    ld.volatile.global.u32 %r0, [flag];
    setp.eq.u32 %p, %r0, 0;
    @%p bra again;
    ret;
}
.visible .entry counts(.param .u64 running)
{
    .reg .b32 %r<2>;
    .reg .b64 %d;
    ld.param.u64 %d, [running];
    mov.u32 %r0, 1;
    st.global.u32 [%d], %r0;
again:
    add.u32 %r0, %r0, 1;
    bra again;
}
"""


@pytest.fixture
def endless(tmp_path):
    path = tmp_path / "endless.ptx"
    path.write_text(ENDLESS)
    return path


def test_a_launch_that_waits_for_ever_is_stopped_and_makes_later_calls_fail(run_program, client, endless):
    result = run_program(client, endless, "waits")
    assert (result.code, result.out.split()) == (0, ["then", "702"]), result.err
    assert {finding["kind"] for finding in result.findings} == {"deadlock"}


@pytest.mark.parametrize(("what", "code"), [("leaves", 4), ("killed", -9)])
def test_a_program_that_ends_in_a_launch_ends_at_once_and_the_launch_is_known(run_program, client, endless, what, code):
    result = run_program(client, endless, what)
    assert result.code == code, result.err
    assert [record["title"] for record in result.begun] == ["counts"]
    assert result.launches == []


def test_more_memory_than_the_gpu_has_is_refused(run_program, client, ptx):
    result = run_program(client, ptx, "too-much")
    assert result.out.split() == ["huge", "2", "rest", "2"], result.err
    assert "549,755,813,888 bytes cannot be allocated: the GPU has" in result.err


def test_stop_at_finding_fails_the_launch(run_program, client, ptx):
    result = run_program(client, ptx, "over", stop_at_finding=True)
    assert result.code == 3
    assert "cuLaunchKernel" in result.err
    assert "719" in result.err


def test_without_exec_the_library_says_what_it_is(client, ptx, library):
    import os
    import subprocess

    environment = {key: value for key, value in os.environ.items() if key != "KERNBENCH_DRIVER"}
    done = subprocess.run(
        [client, ptx],
        env={**environment, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 3
    assert "run the program with `kernbench exec -- ...`" in done.stderr


# of the runtime that a program is built for: the number of the copy that failed is given back to programs of version 12
@pytest.mark.parametrize(("version", "failed"), [(13, 77), (12, 1)])
def test_boxes_are_copied_between_peers_and_in_batches(run_program, compiled, version, failed):
    result = run_program(compiled("batches", f"-DVERSION={version}", f"-l:libcudart.so.{version}"))
    assert result.out.splitlines() == [
        "peers 1 1 1",
        "refused 101 12 801 1 1 1 0 1 101 1 1 801",
        "batches 1 1 1 nodes 2 box 5 4 6 kind 4 1",
        f"refused 1 1 1 1 1 801 1 1 1 1 failed {failed} 1 1 1 1",
        "operations 5 7 refused 1 1 1 1 1 1",
        "memory 1 1 pool 110 1 1 1",
    ], result.err
    assert result.code == 0
    assert "kernbench: copies from and to CUDA arrays are not emulated" in result.err


def test_without_files_for_the_memory_of_the_emulated_gpu_it_is_said_why(client, ptx):
    command = [sys.executable, "-m", "kernbench.cli", "exec", "--", client, ptx]
    limited = ["sh", "-c", f"ulimit -f 8 && exec {shlex.join(map(str, command))}"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=900, check=False)
    assert "no GPU can be emulated here: File too large: files of this process may have " in done.stderr
    assert "at most (RLIMIT_FSIZE): raise that with `ulimit -f`" in done.stderr


def test_without_addresses_for_the_emulated_gpu_it_is_said_why(client, ptx):
    command = [sys.executable, "-m", "kernbench.cli", "exec", "--", client, ptx]
    limited = shlex.join(["sh", "-c", f"ulimit -v 7000000 && exec {shlex.join(map(str, command))}"])
    done = subprocess.run(shlex.split(limited), capture_output=True, text=True, timeout=900, check=False)
    assert "no GPU can be emulated here" in done.stderr
    assert "no limit on virtual memory (ulimit -v unlimited)" in done.stderr
    assert "Traceback" not in done.stderr
