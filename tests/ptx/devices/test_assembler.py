"""The assembler front: resources read off ptxas's log, errors by PTX line, nothing left behind."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.ptx.toolchain import PTXAS, need_ptxas

from kernbench import ptx
from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.devices import toolkit
from kernbench.ptx.devices.assembler import AssemblyError, KernelResources, assemble, find_ptxas, parse_resources

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNEL = """.visible .entry scale(.param .u64 data, .param .f32 factor)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .shared .align 4 .b8 tile[512];
  ld.param.u64 %rd1, [data];
  ld.param.f32 %f1, [factor];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.f32 %f2, [%rd3];
  mul.f32 %f2, %f2, %f1;
  st.shared.f32 [tile], %f2;
  bar.sync 0;
  ld.shared.f32 %f1, [tile];
  st.global.f32 [%rd3], %f1;
  ret;
}
"""


@pytest.fixture
def real_ptxas():
    """A ptxas that knows what these modules ask for; without one the test is skipped."""
    need_ptxas("sm_80", (8, 0))
    need_ptxas("sm_90a", (8, 0))


class Module:
    def emit(self):
        return HEADER + KERNEL


@pytest.fixture
def watched_temp(tmp_path, monkeypatch):
    """Temporary files go to an empty folder, which must be empty again afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [HEADER + KERNEL, Module()], ids=["text", "module"])
def test_resources_and_machine_code(module, real_ptxas, watched_temp):
    assembly = assemble(module, "sm_90a")
    assert assembly.cubin[:4] == b"\x7fELF"
    assert assembly.arch == "sm_90a"
    resources = assembly.kernels["scale"]
    assert resources.registers > 3
    assert resources.shared_bytes == 512
    # a ptxas before 12.5 says nothing of barriers
    assert resources.barriers == (1 if "barriers" in assembly.log else 0)
    assert (resources.spill_stores, resources.spill_loads, resources.stack_bytes) == (0, 0, 0)
    assert "Compiling entry function 'scale'" in assembly.log


def test_the_public_name_is_the_function_whatever_was_imported_before():
    assert ptx.assemble is assemble


def test_spills_show(real_ptxas, watched_temp):
    lines = [f"ld.volatile.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(60)]
    lines += [f"st.volatile.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(60)]
    body = ".reg .f32 %f<60>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];\n" + "\n".join(lines)
    text = f"{HEADER}.visible .entry wide(.param .u64 p)\n{{\n{body}\nret;\n}}\n"
    resources = assemble(text, "sm_90a", options=["--maxrregcount=24"]).kernels["wide"]
    assert resources.registers == 24
    assert resources.spill_stores > 0
    assert resources.spill_loads > 0
    assert resources.stack_bytes >= resources.spill_stores


def test_errors_name_the_line_and_show_it(real_ptxas, watched_temp):
    text = HEADER + KERNEL.replace("mul.f32 %f2, %f2, %f1", "mul.f33 %f2, %f2, %f9")
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    error = caught.value
    assert isinstance(error, KernbenchError)
    assert error.line == text.splitlines().index("  mul.f33 %f2, %f2, %f9;") + 1
    assert error.text == "mul.f33 %f2, %f2, %f9;"
    assert str(error).startswith("ptxas: ")
    assert f"line {error.line}: " in str(error)
    assert "\n    mul.f33 %f2, %f2, %f9;" in str(error)
    assert error.log


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".version 99.0\n.target sm_80\n",
        HEADER.replace("8.0", "8.6").replace("sm_80", "sm_100a") + KERNEL,
        HEADER + KERNEL[:-2],
        "\x00\udcff garbage",
    ],
)
def test_other_refusals(text, real_ptxas, watched_temp):
    with pytest.raises(AssemblyError, match=r"^ptxas: .*\w"):
        assemble(text)


def test_an_arch_is_a_target():
    with pytest.raises(MisuseError, match="'hopper' is no target: write it as ptxas does"):
        assemble(HEADER, "hopper")


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


# what ptxas 13.0 says -> what is made of it
SAID = {
    "ptxas module.ptx, line 16; error   : Unexpected instruction types specified for 'mul'\n"
    "ptxas module.ptx, line 16; error   : Unknown symbol '%f9'\n"
    "ptxas fatal   : Ptx assembly aborted due to errors": (
        "ptxas: line 16: Unexpected instruction types specified for 'mul'\n    mul.f32 %f2, %f2, %f1;\n"
        "line 16: Unknown symbol '%f9'\n    mul.f32 %f2, %f2, %f1;"
    ),
    "ptxas module.ptx, line 1; fatal   : Missing .version directive at start of file 'module.ptx'\n"
    "ptxas fatal   : Ptx assembly aborted due to errors": (
        "ptxas: line 1: Missing .version directive at start of file 'module.ptx'\n    .version 8.0"
    ),
    "ptxas fatal   : SM version specified by .target is higher than default SM version assumed": (
        "ptxas: SM version specified by .target is higher than default SM version assumed"
    ),
}


@pytest.mark.parametrize("log", SAID)
def test_what_ptxas_says_is_reported_by_line(log, tmp_path):
    (tmp_path / "log").write_text(log + "\n")
    show = "while IFS= read -r line; do printf '%s\\n' \"$line\"; done"
    with pytest.raises(AssemblyError) as caught:
        assemble(HEADER + KERNEL, ptxas=script(tmp_path / "ptxas", f"{show} < '{tmp_path / 'log'}'; exit 255"))
    assert str(caught.value) == SAID[log]
    assert caught.value.line == (int(log.split("line ")[1].split(";")[0]) if "line " in log else 0)
    assert caught.value.log.strip() == log


def test_a_hanging_ptxas_is_stopped(tmp_path, monkeypatch):
    program = script(tmp_path / "ptxas", "while :; do :; done")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with pytest.raises(AssemblyError, match=r"did not finish within 0\.2 seconds"):
        assemble(HEADER, timeout=0.2, ptxas=program)
    assert list(scratch.iterdir()) == []


def test_a_crashing_ptxas_is_reported(tmp_path):
    with pytest.raises(AssemblyError, match="ptxas: it ended with code 7: it broke"):
        assemble(HEADER, ptxas=script(tmp_path / "ptxas", "echo it broke; exit 7"))
    with pytest.raises(AssemblyError, match="ptxas: it ended with code 0: it said nothing"):
        assemble(HEADER, ptxas=script(tmp_path / "ptxas", "exit 0"))
    with pytest.raises(MisuseError, match="could not be started"):
        assemble(HEADER, ptxas=str(tmp_path / "absent"))


def test_where_ptxas_is_found(tmp_path, monkeypatch):
    own = script(tmp_path / "own-ptxas", "exit 0")
    monkeypatch.setenv("KERNBENCH_PTXAS", own)
    assert find_ptxas() == own
    monkeypatch.setenv("KERNBENCH_PTXAS", str(tmp_path / "absent"))
    with pytest.raises(MisuseError, match=r"KERNBENCH_PTXAS=.*absent: no such program"):
        find_ptxas()
    monkeypatch.delenv("KERNBENCH_PTXAS")
    (tmp_path / "bin").mkdir()
    home = script(tmp_path / "bin" / "ptxas", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_ptxas() == home


OLD = "ptxas module.ptx, line 1; fatal   : Unsupported .version 9.4; current version is '9.0'"


def release_of(path, number, body):
    """A ptxas of a release."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return script(path, f"[ $1 = --version ] && echo 'release, V{number}' && exit 0\n{body}")


@pytest.fixture
def only(tmp_path, monkeypatch):
    """Nowhere is a ptxas but below this folder, in which `bin` is on PATH and `packages` are the running Python's."""
    monkeypatch.delenv("KERNBENCH_PTXAS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(toolkit.sysconfig, "get_path", lambda name: str(tmp_path / "packages"))
    monkeypatch.setattr(toolkit.site, "getusersitepackages", lambda: str(tmp_path / "nothing"))
    monkeypatch.setattr(toolkit, "_homes", lambda program: iter(()))
    monkeypatch.setattr(toolkit, "_usual_folders", lambda program: iter(()))
    return tmp_path


@pytest.mark.programs
@pytest.mark.parametrize(
    "says", [OLD, "ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'", "Unsupported .target 'sm_90a'"]
)
def test_the_newest_ptxas_of_the_packages_reads_what_the_first_cannot(only, says):
    release_of(only / "bin" / "ptxas", "13.0.88", f'echo "{says}"; exit 255')
    made = 'for word in "$@"; do case $word in --output-file=*) echo code > "${word#*=}";; esac; done'
    release_of(only / "packages/nvidia/cu13/bin/ptxas", "13.1.80", f"{made}; echo of 13.1")
    own = release_of(only / "packages/triton/backends/nvidia/bin/ptxas", "13.4.10", f"{made}; echo of 13.4")
    assembly = assemble(HEADER)
    assert (assembly.log, assembly.ptxas) == ("of 13.4\n", own)


@pytest.mark.programs
def test_where_every_ptxas_is_too_old_that_is_said(only):
    for place in ("bin/ptxas", "packages/nvidia/cu13/bin/ptxas"):
        release_of(only / place, "13.0.88", f'echo "{OLD}"; exit 255')
    with pytest.raises(AssemblyError) as caught:
        assemble(HEADER)
    assert "line 1: Unsupported .version 9.4; current version is '9.0'" in str(caught.value)
    assert "No ptxas found is newer: install one" in str(caught.value)


@pytest.mark.programs
def test_a_ptxas_that_was_chosen_and_is_too_old_is_said_to_be_chosen(only, monkeypatch):
    chosen = release_of(only / "old" / "ptxas", "13.0.88", f'echo "{OLD}"; exit 255')
    release_of(only / "bin" / "ptxas", "13.4.10", "exit 9")
    monkeypatch.setenv("KERNBENCH_PTXAS", chosen)
    with pytest.raises(AssemblyError) as caught:
        assemble(HEADER)
    assert f"KERNBENCH_PTXAS chose {chosen}, and no other was tried: unset it" in str(caught.value)
    monkeypatch.delenv("KERNBENCH_PTXAS")
    with pytest.raises(AssemblyError, match=f"No other ptxas was tried than {chosen}: name a newer one"):
        assemble(HEADER, ptxas=chosen)


@pytest.mark.programs
def test_another_error_is_of_the_first_ptxas(only):
    release_of(only / "bin" / "ptxas", "13.0.88", "echo it broke; exit 7")
    release_of(only / "packages/nvidia/cu13/bin/ptxas", "13.1.80", "echo not asked; exit 8")
    with pytest.raises(AssemblyError, match="code 7: it broke"):
        assemble(HEADER)


def test_a_missing_ptxas_says_what_to_do(monkeypatch):
    monkeypatch.delenv("KERNBENCH_PTXAS", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MisuseError, match=r"install the CUDA toolkit.* or name the program in KERNBENCH_PTXAS"):
        assemble(HEADER)


LOG = """\
ptxas info    : 64 bytes gmem, 64 bytes cmem[3], 8 bytes cmem[4]
ptxas info    : Compiling entry function 'bar' for 'sm_75'
ptxas info    : Function properties for bar
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers, 352 bytes cmem[0]
ptxas info    : Compile time = 1.060 ms
ptxas info    : Compiling entry function 'foo' for 'sm_75'
ptxas info    : Function properties for foo
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 8 registers, used 2 barriers, 256 bytes cumulative stack size, 4 bytes smem, 364 bytes cmem[0], \
8 bytes cmem[2]
ptxas info    : Function properties for device_function
    96 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def test_the_log_is_read_by_kernel():
    assert parse_resources(LOG.splitlines()) == {
        "bar": KernelResources(registers=4, constant_bytes=352),
        "foo": KernelResources(8, 8, 12, 4, 256, 372, 2),
    }


def test_the_environment_is_left_alone():
    before = dict(os.environ)
    assert Path(tempfile.gettempdir()).exists()
    if PTXAS is not None:
        assemble(HEADER + KERNEL)
    assert dict(os.environ) == before
