"""torch's profiler, asked for the times of a GPU: there are none, and it notes what the host does."""

import functools
from typing import Any

from torch.autograd import profiler

from kernbench.ptx.doors.patching import Patches


def install(patches: Patches) -> None:
    """Let `torch.profiler.profile` with `ProfilerActivity.CUDA` run, on a build that cannot watch a GPU, either."""
    make = profiler.profile.__init__

    @functools.wraps(make)
    def on_the_host(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("use_cuda", False) or kwargs.get("use_device") == "cuda":
            kwargs |= {"use_device": None, "use_cpu": True}
        make(self, *args, **kwargs)

    patches.set(profiler.profile, "__init__", on_the_host)
