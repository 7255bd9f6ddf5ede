"""ptxas and nvdisasm where they are installed."""

import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.assembler import find_ptxas
from kernbench.ptx.sass.tools import find_nvdisasm


def _missing() -> str:
    try:
        find_ptxas()
        find_nvdisasm()
    except MisuseError as error:
        return str(error)
    return ""


MISSING = _missing()
needs_tools = pytest.mark.skipif(bool(MISSING), reason=MISSING or "both are installed")
