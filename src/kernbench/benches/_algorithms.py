"""The algorithms for distributed attention in the milestone bench: kernel, wiring, shards, and required traffic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernbench.benches._attention_mesh_kv import attention_mesh_kv_kernel
from kernbench.benches._attention_mesh_mlo import attention_mesh_mlo_kernel
from kernbench.benches.gqa_attention import limits as send
from kernbench.benches.gqa_attention.attention_cycle_kv import attention_cycle_kv_kernel
from kernbench.benches.gqa_attention.attention_merge_mlo import attention_merge_mlo_kernel
from kernbench.benches.gqa_attention.attention_ring_kv import attention_ring_kv_kernel
from kernbench.benches.gqa_attention.attention_stream_kv import attention_stream_kv_kernel
from kernbench.benches.gqa_attention.attention_team_kv import attention_team_kv_kernel
from kernbench.benches.gqa_attention.attention_team_mlo import attention_team_mlo_kernel
from kernbench.benches.gqa_attention.attention_tiled_kv import attention_tiled_kv_kernel
from kernbench.benches.gqa_attention.limits import Problem, Traffic


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    - `idea`: a sentence about how it works
    - `install`: the wiring it needs; "closed" is a cycle if the grid has one, else a line
    - `splits_q`: whether Q is split over the ranks (prefill) or the same on all (decode)
    - `traffic(problem, install, columns)`: the least bytes and hops that it sends
    - `zigzag`: whether shards are two mirrored runs instead of one
    - `options`: further arguments of the kernel
    - `sizes_itself`: whether the kernel chooses block sizes for the machine when none are given
    - `every_pe`: whether all PEs of a cube work when ranks are cubes, not PE 0 alone
    """

    idea: str
    kernel: Callable[..., None]
    install: str
    splits_q: bool
    traffic: Callable[[Problem, str, int], Traffic]
    zigzag: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    sizes_itself: bool = False
    every_pe: bool = False


def _gathered(p: Problem, install: str, columns: int) -> Traffic:
    return send.round_cycle(p) if install == "cycle" else send.on_line(p)


ALGORITHMS = {
    "mesh_kv": Algorithm(
        "K and V travel both ways along the open line and are folded chunk by chunk (published)",
        attention_mesh_kv_kernel,
        "line",
        True,
        _gathered,
    ),
    "ring_kv": Algorithm(
        "K and V travel one way round a ring closed by a wrap link (the older design)",
        attention_ring_kv_kernel,
        "ring",
        True,
        _gathered,
    ),
    "cycle_kv": Algorithm(
        "K and V travel both ways round a closed walk over the grid's links: half the steps of the line",
        attention_cycle_kv_kernel,
        "cycle",
        True,
        _gathered,
    ),
    "stream_kv": Algorithm(
        "the closed walk, double-buffered; scores are made one block ahead, so GEMM and MATH work at once",
        attention_stream_kv_kernel,
        "closed",
        True,
        _gathered,
        sizes_itself=True,
    ),
    "zigzag_kv": Algorithm(
        "stream_kv with zigzag shards: under a causal mask every rank has the same work",
        attention_stream_kv_kernel,
        "closed",
        True,
        _gathered,
        zigzag=True,
        sizes_itself=True,
    ),
    "tiled_kv": Algorithm(
        "two-dimensional: queries are shared along one side of the grid, keys along the other, partials merged back",
        attention_tiled_kv_kernel,
        "grid",
        True,
        lambda p, install, columns: send.tiled(p, columns),
        zigzag=True,
        sizes_itself=True,
    ),
    "team_kv": Algorithm(
        "zigzag shards in blocks of 1,024 keys, cut at the diagonal; where ranks are cubes, every PE of a cube works",
        attention_team_kv_kernel,
        "closed",
        True,
        lambda p, install, columns: send.through_leader(p, _gathered(p, install, columns)),
        zigzag=True,
        sizes_itself=True,
        every_pe=True,
    ),
    "mesh_mlo": Algorithm(
        "every rank's partial travels both ways along the open line, head by head (published)",
        attention_mesh_mlo_kernel,
        "line",
        False,
        lambda p, install, columns: send.every_partial(p),
    ),
    "tree_mlo": Algorithm(
        "all heads in one message, merged towards the rank in the middle, which sends the finished output back",
        attention_merge_mlo_kernel,
        "grid",
        False,
        lambda p, install, columns: send.through_root(p, columns),
        options={"through_root": True},
    ),
    "grid_mlo": Algorithm(
        "all heads in one message, merged along the rows and then along the columns of the grid",
        attention_merge_mlo_kernel,
        "grid",
        False,
        lambda p, install, columns: send.rows_then_columns(p, columns),
    ),
    "team_mlo": Algorithm(
        "where ranks are cubes, every PE of a cube reads some heads; partials meet in PE 0, then in the middle rank",
        attention_team_mlo_kernel,
        "line",
        False,
        lambda p, install, columns: send.through_middle(p),
        every_pe=True,
    ),
}
