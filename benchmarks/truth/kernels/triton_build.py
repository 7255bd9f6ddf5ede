"""`python -m benchmarks.truth.kernels.triton_build [NAME ...]`: compiles Triton kernels, all or some, into ../ptx.

No GPU is needed. Each file begins with what a launch has to know: entry, threads, shared memory.
"""

import json
import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .triton_eighth import EIGHTH
from .triton_fifth import FIFTH
from .triton_kernels import BUILDS
from .triton_newer import NEWER
from .triton_sixth import SIXTH

FOLDER = Path(__file__).parent.parent / "ptx"


def build(name: str) -> str:
    """The PTX of one, with a first line that says how it is launched."""
    files = {"triton_kernels.py": BUILDS, "triton_newer.py": NEWER, "triton_fifth.py": FIFTH, "triton_sixth.py": SIXTH,
             "triton_eighth.py": EIGHTH}  # fmt: skip
    made_of = next(file for file, builds in files.items() if name in builds)
    kernel, types, constants, warps, stages = files[made_of][name]
    names = [*types, *constants]
    signature: dict[str, str] = {**types, **dict.fromkeys(constants, "constexpr")}
    # as at a launch with aligned arrays and sizes that are multiples of 16
    sized = [n for n, kind in types.items() if kind != "fp32"]
    aligned: dict[Any, Any] = {(names.index(n),): [["tt.divisibility", 16]] for n in sized}
    source = ASTSource(kernel, signature, {(names.index(n),): value for n, value in constants.items()}, aligned)
    # what drivers of CUDA 13.0 and the assembler know
    options = {"num_warps": warps, "num_stages": stages, "ptx_version": 87}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    about = {"entry": made.metadata.name, "block": 32 * warps, "shared": made.metadata.shared}
    text = str(made.asm["ptx"])
    # names of files on the machine that compiled it say nothing
    kept = [line for line in text.splitlines() if not line.lstrip().startswith((".loc", ".file"))]
    text = "\n".join(kept).partition("\t.section")[0].rstrip()
    return f"// {json.dumps(about)}\n// Triton {triton.__version__}, kernels/{made_of}\n{text}\n"


for wanted in sys.argv[1:] or (*BUILDS, *NEWER, *FIFTH, *SIXTH, *EIGHTH):
    FOLDER.joinpath(f"{wanted}.ptx").write_text(build(wanted), encoding="utf-8")
    sys.stdout.write(f"{wanted}\n")
