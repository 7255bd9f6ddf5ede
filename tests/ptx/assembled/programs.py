"""Kernels of floating-point arithmetic: small ones of a few statements, and random ones."""

import random

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"


def kernel(statements: str, name: str = "k") -> str:
    """`%f0` to `%f7` and `%r1` to `%r3` come from memory at `%rd1`; what is stored goes behind them."""
    loads = [f"ld.global.f32 %f{n}, [%rd1+{4 * n}];" for n in range(8)]
    loads += [f"ld.global.u32 %r{n}, [%rd1+{32 + 4 * n}];" for n in range(1, 4)]
    body = "\n".join([*loads, statements])
    return f""".visible .entry {name}(.param .u64 p)
{{
.reg .pred %p<8>; .reg .b32 %r<8>; .reg .f32 %f<200>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [p];
{body}
ret;
}}
"""


def random_kernel(seed: int, name: str) -> str:
    """Straight-line arithmetic; results that nothing uses are stored, and no two instructions compute the same."""
    choose = random.Random(seed)
    ftz = choose.choice(["", ".ftz"])
    lines, made, used = [], set(), set()
    values = list(range(8))
    # numbers that differ by their sign at most have one root
    root = {n: n for n in values}
    for d in range(8, 8 + choose.randint(4, 16)):
        opcode = choose.choice(["mul"] * 5 + ["add"] * 5 + ["sub"] * 2 + ["neg", "fma", "max", "div.full"])
        count = {"neg": 1, "fma": 3}.get(opcode, 2)
        operands = [choose.choice(values[-10:]) for _ in range(count)]
        roots = [root[n] for n in operands]
        key = ("add" if opcode == "sub" else opcode, *(roots if opcode == "div.full" else sorted(roots)))
        if key in made or (opcode == "max" and len(set(roots)) == 1):
            continue
        made.add(key)
        root[d] = roots[0] if opcode == "neg" else d
        used.update(operands)
        rounding = ".rn" if opcode == "fma" or (opcode in ("mul", "add", "sub") and choose.random() < 0.1) else ""
        lines.append(
            f"{opcode}{rounding}{'' if opcode == 'neg' else ftz}.f32 "
            + ", ".join(f"%f{n}" for n in (d, *operands))
            + ";"
        )
        values.append(d)
    lines += [f"st.global.f32 [%rd1+{64 + 4 * n}], %f{n};" for n in values if n > 7 and n not in used]
    return kernel("\n".join(lines), name)
