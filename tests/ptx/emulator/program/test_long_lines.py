"""Many instructions on one line: each is shown by itself, and costs no more than on a line of its own."""

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import program_of

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def texts(separator, count=400):
    body = separator.join(f"add.u32 %r{1 + number % 2}, %r0, {number};" for number in range(count))
    kernel = ptx.parse(f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<3>;\n{body}\nret;\n}}\n").kernels["k"]
    return [site.text for site in program_of(kernel).sites]


def test_instructions_of_a_long_line_are_shown_one_by_one():
    assert texts(" ") == texts("\n")
    assert sum(map(len, texts(" "))) < 400 * 40


def test_a_short_line_is_shown_as_it_stands():
    assert texts("   ", 2)[0] == "add.u32 %r1, %r0, 0;   add.u32 %r2, %r0, 1;"


def test_a_finding_of_a_long_line_shows_its_instruction():
    body = " ".join(["mov.u32 %r0, 1;"] * 400)
    text = f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<1>;\n.reg .b64 %rd<1>;\n"
    text += f"{body} mov.u64 %rd0, 8; st.global.u32 [%rd0], %r0;\nret;\n}}\n"
    run = ptx.EmulatedDevice("sm_90a").launch(ptx.parse(text).kernels["k"], 1, 1, [])
    (finding,) = run.findings
    assert "st.global.u32 [%rd0], %r0" in str(finding)
    assert len(str(finding)) < 2_000
