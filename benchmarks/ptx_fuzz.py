"""Mutated statements and mutated modules through the PTX front end: nothing may crash or hang.

A text is either refused with PtxSyntaxError (and a place in the text), or it parses, prints to text that parses to the
same module, and validates or is refused with PtxError. Everything else is reported with the text that did it.

    python benchmarks/ptx_fuzz.py --statements 10000000 --modules 20000 --corpus FOLDER_WITH_PTX
"""

import argparse
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from kernbench import ptx
from kernbench.ptx.isa import FORMS
from kernbench.ptx.isa.forms.form import Form
from kernbench.ptx.text.module import Block, Function
from kernbench.ptx.text.parser import parse_statements
from kernbench.ptx.text.printer import statements_text
from kernbench.ptx.validation.validation import problems

_TOKEN = re.compile(r"[A-Za-z_$%.][\w$:.]*|\d[\w.]*|\S", re.ASCII)
_REGISTERS = parse_statements(".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<9>;")
# tokens that are likely to upset a parser
_STRANGE = (
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        ",",
        ";",
        ":",
        "=",
        "|",
        "!",
        "@",
        "+",
        "-",
        "*",
        "/",
        "%",
        "?",
        "_",
        ".",
    ),
    *("0", "-1", "0x", "0xFFFFFFFFFFFFFFFF", "99999999999999999999", "0f3F8", "0f7F800000", "1e999", "1.", "0d0", "08"),
    *('"', '""', "/*", "*/", "//", "\\", "\0", "\n", "\r", "\t", "é", "`", "#", "::", "<<", "&&", "$", "%", "@!"),
    *(".reg", ".b32", ".v4", ".param", ".align", ".section", ".loc", ".file", ".pragma", ".entry", ".func", ".version"),
    *("WARP_SZ", "generic", "call", "bra", "ret", "mov", "ld", "%tid", "%tid.x", "k", "gv", "p", "x" * 300, "(" * 60),
    *("{" * 210, "1+" * 60, "-" * 60, "[1048576]", "<1048577>", "[0x10000000000]", ".shared .b8 a[1<<62];"),
)


class HangError(Exception):
    """A case took longer than it may."""


@dataclass
class Report:
    """What happened."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.accepted} accepted, {self.refused} refused, {len(self.failures)} crashes or hangs"
        return f"{self.cases} cases: {counts}"


Parse = Callable[[str], ptx.Module]


def statements_module(text: str) -> ptx.Module:
    """Statements alone, read as the body of a kernel."""
    found = parse_statements(text)
    if parse_statements(statements_text(found)) != found:
        raise ValueError("the printed statements read differently")
    return ptx.Module((9, 0), ("sm_100a",), 64, (Function("entry", "k", body=Block((*_REGISTERS, *found))),))


def whole_module(text: str) -> ptx.Module:
    """A whole module."""
    module = ptx.parse(text)
    if ptx.parse(module.emit()) != module:
        raise ValueError("the printed module reads differently")
    for kernel in module.kernels.values():
        _ = kernel.params, kernel.reqntid, kernel.cluster
    return module


def check(text: str, parse: Parse, report: Report) -> None:
    """One case."""
    report.cases += 1
    try:
        module = parse(text)
        report.accepted += 1
        for problem in problems(module):
            str(problem)
    except ptx.PtxSyntaxError as error:
        report.refused += 1
        if min(error.line, error.column) < 1 or not str(error):
            report.failures.append(("an error without a place", text))
    except Exception as error:
        report.failures.append((f"{type(error).__name__}: {error}"[:300], text))


def statements_of(forms: Sequence[Form], texts: Sequence[str]) -> list[str]:
    """Statements to mutate: one for each row of the table, and those of real modules."""
    found = {
        f"{form.opcode}.{'.'.join(s.choices[0] for s in form.slots)} %r1, [%rd1], {{%r2, %r3}}, 1;" for form in forms
    }
    for text in texts:
        found.update(line.strip() for line in text.split("\n") if line.strip() and len(line) < 400)
    return sorted(found)


def mutated(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> list[str]:
    """The tokens with one to four changes."""
    tokens = list(tokens)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        rng.choice(_MUTATIONS)(tokens, vocabulary, rng)
    return tokens


def _anywhere(tokens: list[str], rng: random.Random) -> int:
    return rng.randrange(len(tokens) + 1)


def _delete(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    at = _anywhere(tokens, rng)
    del tokens[at : at + rng.choice((1, 1, 1, 2, 5))]


def _repeat(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    at = _anywhere(tokens, rng)
    tokens[at:at] = tokens[at : at + 3] * rng.choice((1, 1, 2, 20))


def _swap(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    if tokens:
        a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[a], tokens[b] = tokens[b], tokens[a]


def _replace(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    if tokens:
        tokens[rng.randrange(len(tokens))] = rng.choice(vocabulary)


def _insert(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    tokens.insert(_anywhere(tokens, rng), rng.choice(vocabulary))


def _strange(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    tokens.insert(_anywhere(tokens, rng), rng.choice(_STRANGE))


def _character(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    if tokens:
        at = rng.randrange(len(tokens))
        place = rng.randrange(len(tokens[at]) + 1)
        tokens[at] = tokens[at][:place] + chr(rng.randrange(32, 127)) + tokens[at][place + rng.randrange(2) :]


def _truncate(tokens: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    del tokens[_anywhere(tokens, rng) :]


_MUTATIONS: tuple[Callable[[list[str], Sequence[str], random.Random], None], ...] = (
    *(_delete, _repeat, _swap, _replace, _replace, _insert, _insert, _strange, _character, _truncate),
)


def mutated_statements(statements: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """Mutated statements, one at a time."""
    rng = random.Random(seed)
    split = [_TOKEN.findall(statement) for statement in statements]
    vocabulary = sorted({token for tokens in split for token in tokens})
    for _ in range(count):
        yield " ".join(mutated(rng.choice(split), vocabulary, rng))


def mutated_modules(texts: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """Whole modules with lines deleted, repeated, exchanged and spliced, and tokens changed in some."""
    rng = random.Random(seed)
    modules = [text.split("\n") for text in texts]
    vocabulary = sorted({token for lines in modules for line in lines for token in _TOKEN.findall(line)})
    for _ in range(count):
        lines = list(rng.choice(modules))
        for _ in range(rng.choice((1, 2, 3, 8))):
            _mutate_lines(lines, rng.choice(modules), vocabulary, rng)
        yield "\n".join(lines)


def _mutate_lines(lines: list[str], others: list[str], vocabulary: Sequence[str], rng: random.Random) -> None:
    at = rng.randrange(len(lines) + 1)
    length = rng.choice((1, 1, 2, 10, 100))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[at : at + length]
    elif kind == 1:
        lines[at:at] = lines[at : at + length]
    elif kind == 2:
        start = rng.randrange(len(others) + 1)
        lines[at:at] = others[start : start + length]
    elif kind == 3 and rng.random() < 0.1:
        del lines[at:]
    elif at < len(lines):
        lines[at] = " ".join(mutated(_TOKEN.findall(lines[at]), vocabulary, rng))


def run(
    cases: Iterator[str], parse: Parse, seconds_each: int, show: Callable[[str], None] = lambda line: None
) -> Report:
    """Check every case; one that takes longer than `seconds_each` counts as a hang."""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise HangError(f"no answer after {seconds_each} s")

    report = Report()
    before = signal.signal(signal.SIGALRM, alarm)
    began = time.perf_counter()
    try:
        for text in cases:
            signal.alarm(seconds_each)
            check(text, parse, report)
            if report.cases % 100_000 == 0:
                show(f"{report} after {time.perf_counter() - began:.0f} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return report


def _texts(folders: Sequence[str]) -> list[str]:
    return [path.read_text() for folder in folders for path in sorted(Path(folder).rglob("*.ptx"))]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--statements", type=int, default=100_000)
    arguments.add_argument("--modules", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--corpus", action="append", default=[], help="a folder with .ptx files; may be repeated")
    options = arguments.parse_args()
    texts = _texts(options.corpus)
    forms = [form for rows in FORMS.values() for form in rows]
    failures = 0
    statements = statements_of(forms, texts)
    runs = (
        ("statements", statements_module, mutated_statements(statements, options.statements, options.seed)),
        ("modules", whole_module, mutated_modules(texts, options.modules if texts else 0, options.seed)),
    )
    for name, parse, cases in runs:
        began = time.perf_counter()
        report = run(cases, parse, 20, lambda line: print(line, flush=True))
        print(f"{name}: {report} in {time.perf_counter() - began:.0f} s", flush=True)
        for message, text in report.failures[:5]:
            print(f"--- {message}\n{text[-2000:]}")
        failures += len(report.failures)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
