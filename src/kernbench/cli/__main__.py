"""`python -m kernbench.cli` is `kernbench`."""

from kernbench.cli import main

main()
