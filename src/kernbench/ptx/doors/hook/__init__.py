"""The module that Python runs first in programs under `kernbench exec`: see `sitecustomize`."""
