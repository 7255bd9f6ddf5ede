"""Lines of PTX are shown at the user's own line, with the lines of what is inlined there."""

from kernbench.ptx.time.sources import Source, source_lines

HEAD = '.version 8.4\n.target sm_90a\n.address_size 64\n.file 1 "kernel.cu"\n.visible .entry k()\n{\n'

# as Triton writes it: a sum of the language's own library in a loop, and a function of the program's own file
TRITON = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry row_softmax(.param .u64 row_softmax_param_0)
.reqntid 128
{
    .reg .b32 %r<9>;
    .loc 1 4 0
    ld.param.u32 %r1, [row_softmax_param_0];
    .loc 1 9 16
    add.u32 %r2, %r1, 1;
    .loc 2 261 15, function_name $L__info_string0, inlined_at 1 12 15
    add.u32 %r3, %r2, %r2;
    .loc 2 291 36, function_name $L__info_string1, inlined_at 2 261 15
    add.u32 %r4, %r3, %r3;
    .loc 1 2 9, function_name $L__info_string2, inlined_at 1 13 9
    add.u32 %r5, %r4, %r4;
    .loc 1 0 9
    add.u32 %r6, %r5, %r5;
    .loc 1 14 1
    ret;
}
.file 1 "/home/me/softmax.py"
.file 2 "/env/lib/python3.11/site-packages/triton/language/standard.py"
.section .debug_str
{
$L__info_string0:
.b8 115,117,109,0
$L__info_string1:
.b8 97,100,100,0
$L__info_string2:
.b8 109,105,110,101,0
}
"""


def line_of(text, instruction):
    (found,) = [number for number, line in enumerate(text.splitlines(), 1) if instruction in line]
    return found


def test_lines_of_the_source_come_from_loc_lines():
    text = HEAD + "bar.sync 0;\n.loc 1 12 3\nbar.sync 0;\n.loc 1 14 3\nret;\n}\n"
    assert source_lines(text) == {9: Source("kernel.cu", 12), 11: Source("kernel.cu", 14)}
    assert source_lines(text.replace(".loc 1", "// 1")) == {}


def test_a_reduction_of_triton_is_at_the_line_of_the_program_that_asks_for_it():
    lines, own, library = source_lines(TRITON), "/home/me/softmax.py", TRITON.split('.file 2 "')[1].split('"')[0]
    assert lines[line_of(TRITON, "%r2, %r1, 1")] == Source(own, 9)
    assert lines[line_of(TRITON, "%r3, %r2")] == Source(own, 12, ((library, 261),))
    assert lines[line_of(TRITON, "%r4, %r3")] == Source(own, 12, ((library, 291), (library, 261)))


def test_releases_of_triton_that_name_callers_in_comments_alone_are_read_the_same():
    text = TRITON
    for line in TRITON.splitlines():
        if "inlined_at" in line and ".loc 2" in line:
            inner = "standard.py:291:36 @[ standard.py:261:15" if "291" in line else "standard.py:261:15"
            text = text.replace(
                line, f"{line.partition(',')[0]} // {inner} @[ softmax.py:12:15 ]{' ]' * ('291' in line)}"
            )
    assert "inlined_at 1 12" not in text
    assert "@[ softmax.py:12:15 ] ]" in text
    assert source_lines(text) == source_lines(TRITON)


def test_a_function_of_the_programs_own_file_has_its_own_line_and_says_who_calls():
    own = "/home/me/softmax.py"
    assert source_lines(TRITON)[line_of(TRITON, "%r5, %r4")] == Source(own, 2, callers=((own, 13),))


def test_line_0_is_no_line():
    lines = source_lines(TRITON)
    assert line_of(TRITON, "%r6, %r5") not in lines
    assert lines[line_of(TRITON, "ret;")] == Source("/home/me/softmax.py", 14)


def test_lines_as_data_name_inlined_functions_only_where_there_are_any():
    assert Source("a.py", 3).data() == {"file": "a.py", "line": 3}
    assert Source("a.py", 3, (("b.py", 4),)).data() == {
        "file": "a.py",
        "line": 3,
        "inner": [{"file": "b.py", "line": 4}],
    }
