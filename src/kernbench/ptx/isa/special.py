"""Special registers: name, type, and since when they exist."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A special register; `components` are the letters of a vector's components."""

    name: str
    type: str
    version: tuple[int, int] = (1, 0)
    sm: int = 10
    components: str = ""


_VECTORS = {
    "xyz": (
        ("%tid", "u32", (1, 0), 10),
        ("%ntid", "u32", (1, 0), 10),
        ("%ctaid", "u32", (1, 0), 10),
        ("%nctaid", "u32", (1, 0), 10),
        ("%clusterid", "u32", (7, 8), 90),
        ("%nclusterid", "u32", (7, 8), 90),
        ("%cluster_ctaid", "u32", (7, 8), 90),
        ("%cluster_nctaid", "u32", (7, 8), 90),
    )
}
_SCALARS = (
    ("%laneid", "u32", (1, 3), 10),
    ("%warpid", "u32", (1, 3), 10),
    ("%nwarpid", "u32", (2, 0), 20),
    ("%smid", "u32", (1, 3), 10),
    ("%nsmid", "u32", (2, 0), 20),
    ("%gridid", "u64", (1, 0), 10),
    ("%is_explicit_cluster", "pred", (7, 8), 90),
    ("%cluster_ctarank", "u32", (7, 8), 90),
    ("%cluster_nctarank", "u32", (7, 8), 90),
    ("%lanemask_eq", "u32", (2, 0), 20),
    ("%lanemask_le", "u32", (2, 0), 20),
    ("%lanemask_lt", "u32", (2, 0), 20),
    ("%lanemask_ge", "u32", (2, 0), 20),
    ("%lanemask_gt", "u32", (2, 0), 20),
    ("%clock", "u32", (1, 0), 10),
    ("%clock_hi", "u32", (5, 0), 20),
    ("%clock64", "u64", (2, 0), 20),
    ("%globaltimer", "u64", (3, 1), 30),
    ("%globaltimer_lo", "u32", (3, 1), 30),
    ("%globaltimer_hi", "u32", (3, 1), 30),
    ("%reserved_smem_offset_begin", "b32", (7, 6), 80),
    ("%reserved_smem_offset_end", "b32", (7, 6), 80),
    ("%reserved_smem_offset_cap", "b32", (7, 6), 80),
    ("%reserved_smem_offset_0", "b32", (7, 6), 80),
    ("%reserved_smem_offset_1", "b32", (7, 6), 80),
    ("%total_smem_size", "u32", (4, 1), 20),
    ("%aggr_smem_size", "u32", (8, 1), 90),
    ("%dynamic_smem_size", "u32", (4, 1), 20),
    ("%current_graph_exec", "u64", (8, 0), 50),
    *((f"%envreg{n}", "b32", (2, 1), 10) for n in range(32)),
    *((f"%pm{n}", "u32", (1, 3), 20) for n in range(8)),
    *((f"%pm{n}_64", "u64", (4, 0), 50) for n in range(8)),
)


def _table() -> dict[str, SpecialRegister]:
    table = {row[0]: SpecialRegister(*row) for row in _SCALARS}
    for components, rows in _VECTORS.items():
        for name, kind, version, sm in rows:
            table[name] = SpecialRegister(name, kind, version, sm, components)
            table |= {f"{name}.{c}": SpecialRegister(f"{name}.{c}", kind, version, sm) for c in components}
    return table


SPECIAL_REGISTERS = _table()


def special_register(name: str) -> SpecialRegister | None:
    """The special register of this name (`%tid.x`), or None."""
    return SPECIAL_REGISTERS.get(name)
