"""`python -m kernbench` is `kernbench`."""

from kernbench.cli import main

main()
