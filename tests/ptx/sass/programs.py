"""Random structured PTX programs: loops with and without known trip counts, nested ifs, switches, early exits."""

import random
from dataclasses import dataclass, field

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry random_program(.param .u64 p_data, .param .u32 p_a, .param .u32 p_b)
{
.reg .pred %p<99>;
.reg .b32 %r<99>;
.reg .f32 %f<99>;
.reg .b64 %d<9>;
.shared .align 16 .b8 tile[4096];
ld.param.u64 %d0, [p_data];
cvta.to.global.u64 %d0, %d0;
ld.param.u32 %r0, [p_a];
ld.param.u32 %r1, [p_b];
mov.u32 %r2, %tid.x;
mul.wide.u32 %d1, %r2, 4;
add.s64 %d1, %d0, %d1;
mov.f32 %f0, 0f3F800000;
mov.u32 %r3, tile;
"""
TAIL = "st.global.f32 [%d1+65536], %f0;\nret;\n}\n"


@dataclass
class Writer:
    """Lines as they come; registers and labels are given out once."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    registers: int = 10
    predicates: int = 0
    labels: int = 0
    memory: int = 0
    constants: int = 0

    def register(self) -> str:
        self.registers += 1
        return f"%r{self.registers}"

    def predicate(self) -> str:
        self.predicates += 1
        return f"%p{self.predicates}"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def place(self) -> int:
        self.memory += 4
        return self.memory

    def multiply(self, source: str = "%f0") -> str:
        """A product unlike all others, so that no compiler finds it twice."""
        self.constants += 1
        return f"fma.rn.f32 %f0, {source}, 0f3F8{self.constants:05X}, %f0;"

    def add(self, *lines: str) -> None:
        self.lines += lines


def program(seed: int, events: bool = True) -> str:
    """A program by seed; without `events` its loops only compute."""
    writer = Writer(random.Random(seed))
    body(writer, 0, True, events)
    return HEAD + "\n".join(writer.lines) + "\n" + TAIL


def body(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    for _ in range(writer.random.randint(1, 3)):
        choices = ["compute", "compute", "access"] if events else ["compute"]
        if depth < 3 and writer.registers < 80:
            choices += ["loop", "loop", "if", "if_else", "switch"]
        if depth and events:
            choices += ["leave"]
        what = writer.random.choice(choices)
        _MAKERS[what](writer, depth, uniform, events)
    if uniform and depth == 0 and events:
        writer.add("bar.sync 0;")


def compute(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    for _ in range(writer.random.randint(1, 4)):
        writer.add(writer.multiply())
    if writer.random.random() < 0.4:
        writer.add("ex2.approx.ftz.f32 %f0, %f0;")


def access(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    place = writer.place()
    kind = writer.random.choice(("load", "store", "shared", "atomic"))
    if kind == "load":
        writer.add(f"ld.global.f32 %f2, [%d1+{place}];", writer.multiply("%f2"))
    elif kind == "store":
        writer.add(f"st.global.f32 [%d1+{place}], %f0;")
    elif kind == "shared":
        writer.add(f"st.shared.f32 [%r3+{place % 2048}], %f0;", f"ld.shared.f32 %f2, [%r3+{2048 + place % 2048}];")
        writer.add(writer.multiply("%f2"))
    else:
        writer.add(f"red.global.add.f32 [%d1+{place}], %f0;")


def loop(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    counter, predicate, label = writer.register(), writer.predicate(), writer.label()
    form = writer.random.choice(("known", "given", "lane") if uniform else ("known", "given"))
    limit = {"known": str(writer.random.randint(1, 9)), "given": "%r0", "lane": ""}[form]
    if form == "lane":
        limit = writer.register()
        writer.add(f"and.b32 {limit}, %r2, 3;", f"add.u32 {limit}, {limit}, 1;")
    writer.add(f"mov.u32 {counter}, 0;", f"{label}:")
    if writer.random.random() < 0.2:
        writer.add('.pragma "nounroll";')
    body(writer, depth + 1, uniform and form != "lane", events)
    writer.add(f"add.u32 {counter}, {counter}, 1;", f"setp.lt.u32 {predicate}, {counter}, {limit};")
    writer.add(f"@{predicate} bra {label};")


def condition(writer: Writer) -> str:
    predicate = writer.predicate()
    if writer.random.random() < 0.5:
        writer.add(f"setp.gt.u32 {predicate}, %r1, {writer.random.randint(0, 4)};")
    else:
        writer.add(f"setp.lt.u32 {predicate}, %r2, {writer.random.randint(1, 31)};")
    return predicate


def choice(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    predicate, behind = condition(writer), writer.label()
    writer.add(f"@{predicate} bra {behind};")
    body(writer, depth + 1, False, events)
    writer.add(f"{behind}:")


def choice_of_two(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    predicate, other, behind = condition(writer), writer.label(), writer.label()
    writer.add(f"@{predicate} bra {other};")
    body(writer, depth + 1, False, events)
    writer.add(f"bra.uni {behind};", f"{other}:")
    body(writer, depth + 1, False, events)
    writer.add(f"{behind}:")


def switch(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    sides, behind, listed = [writer.label() for _ in range(5)], writer.label(), writer.label()
    index = writer.register()
    source = "%r1" if writer.random.random() < 0.5 else "%r2"
    writer.add(f"rem.u32 {index}, {source}, 5;")
    writer.add(f"{listed}: .branchtargets {', '.join(sides)};", f"brx.idx {index}, {listed};")
    for side in sides:
        writer.add(f"{side}:")
        (access if events else compute)(writer, depth, False, events)
        writer.add(f"bra.uni {behind};")
    writer.add(f"{behind}:")


def leave(writer: Writer, depth: int, uniform: bool, events: bool) -> None:
    predicate = writer.predicate()
    writer.add(f"setp.eq.u32 {predicate}, %r2, {writer.random.randint(0, 40)};", f"@{predicate} exit;")


_MAKERS = {
    "compute": compute,
    "access": access,
    "loop": loop,
    "if": choice,
    "if_else": choice_of_two,
    "switch": switch,
    "leave": leave,
}
