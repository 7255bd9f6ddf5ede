"""Images that programs load: containers, what they are packed with, which text is chosen, what is refused and why."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ptx.doors.driver import packed

from kernbench.ptx.doors.driver.images import lz4, zstd
from kernbench.ptx.doors.driver.images.errors import ImageError
from kernbench.ptx.doors.driver.images.fatbin import read_fatbins
from kernbench.ptx.doors.driver.images.images import NoPtxError, texts_of
from kernbench.ptx.doors.driver.images.kept import kernel_names
from kernbench.ptx.doors.driver.images.linking import link_texts
from kernbench.ptx.text.parser import parse


def test_zstandard_frames_give_their_bytes():
    assert zstd.decompress(packed.ZSTD, len(packed.SCALE)) == packed.SCALE.encode()
    assert zstd.decompress(packed.ZSTD_THREE, 3 * len(packed.SCALE)) == 3 * packed.SCALE.encode()


def test_an_lz4_block_gives_its_bytes():
    assert lz4.decompress(packed.LZ4, len(packed.SCALE)) == packed.SCALE.encode()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_broken_frames_are_refused_and_never_crash(data):
    which, decompress = data.draw(st.sampled_from([(packed.ZSTD, zstd.decompress), (packed.LZ4, lz4.decompress)]))
    broken = bytearray(which)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    try:
        found = decompress(cut, len(packed.SCALE))
    except ImageError:
        return
    assert len(found) <= len(packed.SCALE)


@pytest.mark.parametrize("made", [packed.ptx_entry(packed.SCALE, 80), packed.zstd_entry(80), packed.lz4_entry(80)])
def test_ptx_is_found_however_it_is_packed(made):
    assert texts_of(packed.fatbin(made), "sm_90a") == [packed.SCALE]


def test_the_newest_text_that_runs_is_chosen():
    texts = [packed.SCALE.replace("sm_80", target) for target in ("sm_70", "sm_80", "sm_90a", "sm_100a")]
    image = packed.fatbin(
        packed.cubin_entry(90),
        *(packed.ptx_entry(text, arch) for text, arch in zip(texts, (70, 80, 90, 100), strict=True)),
    )
    assert texts_of(image, "sm_90a") == [texts[2]]
    assert texts_of(image, "sm_90") == [texts[1]]
    assert texts_of(image, "sm_75") == [texts[0]]
    assert texts_of(image, "sm_100a") == [texts[3]]


def test_what_holds_no_ptx_is_refused_with_the_flag_that_adds_it():
    flag = r"compile with -gencode arch=compute_90a,code=compute_90a"
    with pytest.raises(NoPtxError, match=f"machine code for sm_80, sm_90 and no PTX.*{flag}"):
        texts_of(packed.fatbin(packed.cubin_entry(80), packed.cubin_entry(90)), "sm_90a")
    with pytest.raises(NoPtxError, match=f"PTX for sm_100, which does not run on sm_90a: {flag}.*--arch sm_100"):
        texts_of(packed.fatbin(packed.ptx_entry(packed.SCALE.replace("sm_80", "sm_100"), 100)), "sm_90a")
    with pytest.raises(NoPtxError, match=f"machine code .a cubin.*{flag}"):
        texts_of(b"\x7fELF" + bytes(100), "sm_90a")
    with pytest.raises(ImageError, match="neither PTX nor a fat binary"):
        texts_of(b"hello", "sm_90a")


@pytest.mark.parametrize("cut", [3, 12, 40, 90])
def test_a_container_that_is_cut_off_is_refused(cut):
    with pytest.raises(ImageError):
        list(read_fatbins(packed.fatbin(packed.zstd_entry(80))[:-cut]))


def test_a_length_that_no_text_has_is_refused():
    with pytest.raises(ImageError, match="are read at most"):
        list(read_fatbins(packed.fatbin(packed.entry(1, 80, packed.ZSTD, 0x8011, 1 << 60))))


def test_several_images_are_linked_into_one_module():
    other = packed.SCALE.replace("scale", "other").replace(".version 8.0", ".version 8.3")
    texts = texts_of(packed.fatbin(packed.zstd_entry(80)) + packed.fatbin(packed.ptx_entry(other, 80)), "sm_90a")
    module = parse(link_texts(texts))
    assert sorted(module.kernels) == ["other", "scale"]
    assert module.version == (8, 3)
    # the driver's linker gives texts one behind the other
    assert sorted(parse(link_texts([packed.SCALE + "\n" + other])).kernels) == ["other", "scale"]


PART = """.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 func_retval0) scaled (.param .b32 p0);
.file 1 "FILE.cu"
.global .align 1 .b8 $str[3] = {37, 100, 0};
LINKAGE .global .align 4 .u32 counter;
.func helper(.param .b32 q) { ret; }
.visible .entry FILE(.param .u64 x)
{
    .reg .b64 %d<2>;
    .loc 1 3 5
    mov.u64 %d1, $str;
    ret;
}
"""


def test_names_that_texts_keep_to_themselves_do_not_meet():
    words = ("one", ".visible"), ("two", ".extern")
    linked = link_texts([PART.replace("FILE", name).replace("LINKAGE", linkage) for name, linkage in words])
    module = parse(linked)
    assert sorted(module.kernels) == ["one", "two"]
    assert sorted(module.variables) == ["$str", "$str__1", "counter"]
    assert sorted(module.functions) == ["helper", "helper__1", "scaled"]
    assert dict(module.source_files) == {1: "one.cu", 2: "two.cu"}
    assert "mov.u64 %d1, $str__1;" in linked
    assert ".loc 2 3 5" in linked


def test_a_part_for_other_architectures_is_left_out_where_others_fit():
    other = packed.ptx_entry(packed.SCALE.replace("sm_80", "sm_121"), 121)
    assert texts_of(packed.fatbin(packed.zstd_entry(80)) + packed.fatbin(other), "sm_90a") == [packed.SCALE]
    with pytest.raises(NoPtxError, match="has PTX for sm_121, which does not run on sm_90a"):
        texts_of(packed.fatbin(other), "sm_90a")


def machine_code(*kernels: str) -> bytes:
    """The least of an ELF file that names its kernels: a section for each, and one for the names."""
    names, headers = b"\0", [bytes(64)]
    for name in (*(f".text.{kernel}" for kernel in kernels), ".shstrtab"):
        headers.append(len(names).to_bytes(4, "little") + bytes(60))
        names += name.encode() + b"\0"
    headers[-1] = headers[-1][:24] + (64).to_bytes(8, "little") + len(names).to_bytes(8, "little") + bytes(24)
    head = b"\x7fELF" + bytes(36) + (64 + len(names)).to_bytes(8, "little") + bytes(12)
    head += len(headers).to_bytes(2, "little") + (len(headers) - 1).to_bytes(2, "little")
    return head + names + b"".join(headers)


def test_ptx_that_a_compiler_kept_stands_for_its_machine_code(tmp_path):
    code = machine_code("scale")
    assert kernel_names(code) == ["scale"]
    (tmp_path / "scaled.ptx").write_text(packed.SCALE.replace("scale", "scaled"))
    flag = "compile with -gencode"
    with pytest.raises(NoPtxError, match=flag):
        texts_of(code, "sm_90a", tmp_path)
    (tmp_path / "scale.ptx").write_text(packed.SCALE)
    assert texts_of(code, "sm_90a", tmp_path) == [packed.SCALE]
    assert texts_of(packed.fatbin(packed.entry(2, 90, code)), "sm_90a", tmp_path) == [packed.SCALE]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_names_of_broken_machine_code_are_not_found(tail):
    assert isinstance(kernel_names(b"\x7fELF" + tail), list)


def test_of_a_package_that_came_ready_built_nobody_is_asked_to_compile_it():
    """The advice is what a program that uses it can do; texts for later architectures are not even unpacked."""
    library = "/opt/python/lib/site-packages/cupy/cuda/thrust.so"
    later = packed.entry(1, 120, bytes(1 << 16), packed._ZSTD, 1 << 20)
    with pytest.raises(NoPtxError) as refused:
        texts_of(packed.fatbin(packed.cubin_entry(80), later), "sm_90a", in_file=library)
    assert str(refused.value).startswith(
        "the library thrust.so of cupy has PTX for sm_120, which does not run on sm_90a"
    )
    assert "cupy.asarray(numpy.sort(cupy.asnumpy(x)))" in str(refused.value)
    assert "-gencode" not in str(refused.value)
    with pytest.raises(NoPtxError, match=r"the library ops.so of other has machine code .* on the host, or install"):
        texts_of(packed.fatbin(packed.cubin_entry(80)), "sm_90a", in_file="/usr/lib/dist-packages/other/ops.so")
    with pytest.raises(NoPtxError, match=r"the program has machine code .* compile with -gencode"):
        texts_of(packed.fatbin(packed.cubin_entry(80)), "sm_90a", in_file="/home/me/a.out")
