"""Machine code is loaded so that it reaches its data, wherever the system has memory left.

This holds what must hold of any loader. Where LLVM's older one fails depends on the addresses that a system has free.
"""

import mmap
from contextlib import ExitStack, closing

import pytest
from llvmlite import binding as llvm

from kernbench.common.native import machine

# code of x86-64 reaches 2 GiB, code of 64-bit ARM 4 GiB
REACH = 1 << 31
_LINE = """
@table.{name} = global [4 x ptr] zeroinitializer
@large.{name} = global [{large} x i8] zeroinitializer
define ptr @{name}(ptr %self, ptr %arguments, i64 %count) {{
  %entry = load ptr, ptr @table.{name}
  store i8 1, ptr @large.{name}
  ret ptr %entry
}}
"""


def reserved(nbytes: int) -> mmap.mmap:
    """Addresses without memory, as a device takes them."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        return mmap.mmap(-1, nbytes, flags=flags, prot=0)
    except OSError:
        pytest.skip(f"this process may not reserve {nbytes >> 30} GiB of addresses")


def test_code_lies_near_its_data_whatever_lies_between_pages_that_are_free():
    kept = []
    with ExitStack() as stack:
        for number in range(12):
            name = f"near_{number}"
            code = machine.translated(_LINE.format(name=name, large=4096 * (number + 1)))
            library = llvm.JITLibraryBuilder().add_object_img(code)
            for symbol in (name, f"table.{name}", f"large.{name}"):
                library.export_symbol(symbol)
            linked = library.link(machine._linker(), f"test {name}")
            # machine code goes away with what linked it
            kept.append(linked)
            addresses = [linked[symbol] for symbol in (name, f"table.{name}", f"large.{name}")]
            assert max(addresses) - min(addresses) < REACH
            # a page is left free between two ranges that are not
            stack.enter_context(closing(reserved(1 << 33)))
            between = reserved(mmap.PAGESIZE)
            stack.enter_context(closing(reserved(1 << 33)))
            between.close()
