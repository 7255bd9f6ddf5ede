"""kernbench: run attention kernels on accelerators you do not have, and learn whether they are right, safe and fast.

Targets are imported by name when they are first used (`from kernbench import mesh`), so that one runs where
another's dependences are missing.
"""

__version__ = "0.1.0"
