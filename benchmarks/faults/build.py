"""`python -m benchmarks.faults.build`: makes `faults.ptx` of `faults.cu`, with nvcc 13.0 on the path.

Debug sections, comments and folders in names of files are left out, so that the text is small and the same everywhere.
"""

import re
import subprocess

from .pairs import TEXT


def plain(text: str) -> str:
    """A text of nvcc with `.loc` lines, without what only debuggers read."""
    files = re.findall(r"^\t\.file.*\n", text, flags=re.M)
    body = re.split(r"^\t?\.section", text, maxsplit=1, flags=re.M)[0]
    body = re.sub(r"(\t\.loc\s+\d+ \d+ \d+),.*", r"\1", body)
    body = re.sub(r"^(\s*//.*|\t\.file.*|\s*)\n", "", body, flags=re.M)
    return body + "".join(re.sub(r'"(?:.*/)?([^/"]+)"', r'"\1"', line) for line in files)


def main() -> None:
    """Compile, and write the text."""
    words = ["nvcc", "-arch=sm_90a", "-lineinfo", "-ptx", "faults.cu", "-o", TEXT.name]
    subprocess.run(words, cwd=TEXT.parent, check=True)
    TEXT.write_text(plain(TEXT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
