"""How releases of Triton call a launcher, by the objects that they pass: arguments arrive, constants are dropped.

Triton need not be installed: the objects are made here as the sources of each release make them.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.doors.kernels import ADD_ONE

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.triton_door.launching import Launcher, flattened

NAMES = ["x", "y", "n", "one", "nothing", "B"]
FUNCTION = SimpleNamespace(arg_names=NAMES, __name__="plus_one")
POINTERS = {"x": "*i32", "y": "*i32", "n": "i32"}
# 3.2: only what is no constexpr is in the signature and passed; what is 1 or None is among the constants
OLD = SimpleNamespace(
    fn=FUNCTION,
    signature={**POINTERS, "one": "i32", "nothing": "*i8"},
    constants={"one": 1, "nothing": None, "B": 64},
)
# 3.3 and later: all is in the signature and passed, constants by their position
NEW = SimpleNamespace(
    fn=FUNCTION,
    signature={**POINTERS, "one": "constexpr", "nothing": "constexpr", "B": "constexpr"},
    constants={(3,): 1, (4,): None, (5,): 64},
)
# what 3.2 says of a kernel, and what came later
PLAIN = {"name": "add_one", "num_warps": 2, "num_ctas": 1, "cluster_dims": (1, 1, 1), "shared": 0}
SCRATCH = {"global_scratch_size": 0, "global_scratch_align": 1, "launch_cooperative_grid": False}
LATER = {**SCRATCH, "launch_pdl": False, "profile_scratch_size": 0, "tensordesc_meta": None}
RELEASES = {
    "3.2": (OLD, PLAIN, False),
    "3.3": (NEW, {**PLAIN, **SCRATCH}, True),
    "3.4": (NEW, {**PLAIN, **LATER}, True),
}


class Tensor:
    """What a launcher takes for a tensor."""

    def __init__(self, address):
        self._address = address

    def data_ptr(self):
        return self._address


@pytest.mark.parametrize(("source", "metadata", "whole"), RELEASES.values(), ids=RELEASES)
def test_a_launch_of_each_release(session_of, source, metadata, whole):
    session = session_of()
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    launcher = Launcher(session, source, SimpleNamespace(**metadata), SimpleNamespace(on=False))
    called = []
    arguments = [Tensor(x), Tensor(y), 64, 1, None, *([64] if whole else [])]
    hooks = [called.append, called.append]
    launcher(1, 1, 1, 0, session.load(ADD_ONE), (), "metadata", *hooks, *arguments)
    (launch,) = session.launches
    assert (launch.title, launch.block, launch.ok) == ("plus_one", (64, 1, 1), True)
    assert launch.details["constants"] == {"one": 1, "B": 64, "num_warps": 2, "num_ctas": 1}
    assert session.memory.view(y, 256).view(np.int32).tolist() == [1] * 64
    assert called == ["metadata", "metadata"]


def test_a_release_that_launches_otherwise_is_named(session_of):
    session = session_of()
    launcher = Launcher(session, NEW, SimpleNamespace(**PLAIN), SimpleNamespace(on=False))
    with pytest.raises(MisuseError, match=r"passes 7 arguments for the 6 of 'plus_one'.*does not know the release"):
        launcher(1, 1, 1, 0, session.load(ADD_ONE), (), None, None, None, *[0] * 7)


def test_a_tensor_of_the_host_and_an_empty_grid(session_of):
    session = session_of()
    launcher = Launcher(session, OLD, SimpleNamespace(**PLAIN), SimpleNamespace(on=False))
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed from Triton"):
        launcher(1, 1, 1, 0, session.load(ADD_ONE), (), None, None, None, Tensor(4096), Tensor(4096), 64, 1, None)
    launcher(0, 1, 1, 0, session.load(ADD_ONE), (), None, None, None, Tensor(4096), Tensor(4096), 64, 1, None)
    assert session.launches == []


def test_tuples_are_opened():
    kinds, values = ["i32", ("*fp32", ("constexpr", "i64"))], [1, ("p", (2, 3))]
    assert list(flattened(kinds, values)) == [(1, "i32"), ("p", "*fp32"), (3, "i64")]
