"""Special registers as properties: `ctx.tid_x` is `%tid.x`, read into a new register each time."""

from kernbench.common.errors import unknown
from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.isa.special import SPECIAL_REGISTERS
from kernbench.ptx.text.module import Name

__kernbench_internal__ = True


def _property(name: str) -> property:
    def read(self: "Special") -> Register:
        return self.special(name)

    return property(read, doc=f"`{name}`.")


class Special(Issuer):
    """Thread indices, clocks and other special registers."""

    def special(self, name: str) -> Register:
        """A special register by its PTX name."""
        known = SPECIAL_REGISTERS.get(name)
        if known is None:
            raise self.error(unknown("special register", name, sorted(SPECIAL_REGISTERS)))
        if known.components:
            raise self.error(f"{name} has components: read {name}.x")
        self.body.needs.special(known, self.body.here())
        made = self.reg(known.type)
        self.move(made, Name(name), (), known.type)
        return made

    def global_index(self, axis: str = "x") -> Register:
        """The thread's number in the grid along an axis: ctaid * ntid + tid."""
        parts = (self.special(f"%{name}.{axis}") for name in ("ctaid", "ntid", "tid"))
        return self.issue("mad", {"part": "lo", "type": "u32"}, tuple(parts))  # type: ignore[no-any-return]

    tid_x, tid_y, tid_z = (_property(f"%tid.{axis}") for axis in "xyz")
    ntid_x, ntid_y, ntid_z = (_property(f"%ntid.{axis}") for axis in "xyz")
    ctaid_x, ctaid_y, ctaid_z = (_property(f"%ctaid.{axis}") for axis in "xyz")
    nctaid_x, nctaid_y, nctaid_z = (_property(f"%nctaid.{axis}") for axis in "xyz")
    clusterid_x, clusterid_y, clusterid_z = (_property(f"%clusterid.{axis}") for axis in "xyz")
    nclusterid_x, nclusterid_y, nclusterid_z = (_property(f"%nclusterid.{axis}") for axis in "xyz")
    cluster_ctaid_x, cluster_ctaid_y, cluster_ctaid_z = (_property(f"%cluster_ctaid.{axis}") for axis in "xyz")
    cluster_nctaid_x, cluster_nctaid_y, cluster_nctaid_z = (_property(f"%cluster_nctaid.{axis}") for axis in "xyz")
    cluster_ctarank = _property("%cluster_ctarank")
    cluster_nctarank = _property("%cluster_nctarank")
    is_explicit_cluster = _property("%is_explicit_cluster")
    laneid = _property("%laneid")
    warpid = _property("%warpid")
    nwarpid = _property("%nwarpid")
    smid = _property("%smid")
    nsmid = _property("%nsmid")
    gridid = _property("%gridid")
    lanemask_eq = _property("%lanemask_eq")
    lanemask_le = _property("%lanemask_le")
    lanemask_lt = _property("%lanemask_lt")
    lanemask_ge = _property("%lanemask_ge")
    lanemask_gt = _property("%lanemask_gt")
    clock = _property("%clock")
    clock64 = _property("%clock64")
    globaltimer = _property("%globaltimer")
    total_smem_size = _property("%total_smem_size")
    dynamic_smem_size = _property("%dynamic_smem_size")
