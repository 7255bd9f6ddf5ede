"""Barriers and fences."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import SCOPE

group = Group("Barriers and fences", "sync")
row = group.row
does = group.does

_OTHER_BARRIER = ("dropped", "other barrier number", "other thread count")
_MEETING = Effects(barrier=True, ends_block=True, follows_from="block", mutants=_OTHER_BARRIER, event="barrier")
does("bar", _MEETING)
does("bar.red", replace(_MEETING, forwards=False))
does("bar.warp", Effects(barrier=True, ends_block=True, follows_from="lane", mutants=("dropped",)))
does("bar.cluster", Effects(barrier=True, ends_block=True, mutants=("dropped", "relaxed"), event="cluster barrier"))
does("fence", Effects(fences=True, follows_from="lane", mutants=("dropped", "narrower fence"), event="fence"))
does("fence.proxy", Effects(asynchronous=True, mutants=("dropped", "other space", "narrower"), event="proxy fence"))

row("bar", "cta? mode:sync", "id:u32, count:u32?", "bar")
row("bar", "cta? mode:arrive", "id:u32, count:u32", "bar")
row("bar", "cta? mode:red op:popc type:u32", "=d, id:u32, count:u32?, p:pred", "bar.red")
row("bar", "cta? mode:red op:and|or type:pred", "=d:pred, id:u32, count:u32?, p:pred", "bar.red")
row("bar", "warp sync", "mask:u32", "bar.warp", since="6.0", sm=30)
row("barrier", "cta? mode:sync aligned?", "id:u32, count:u32?", "bar", since="6.0", sm=30)
row("barrier", "cta? mode:arrive aligned?", "id:u32, count:u32", "bar", since="6.0", sm=30)
row(
    "barrier",
    "cta? mode:red op:popc aligned? type:u32",
    "=d, id:u32, count:u32?, p:pred",
    "bar.red",
    since="6.0",
    sm=30,
)
row(
    "barrier",
    "cta? mode:red op:and|or aligned? type:pred",
    "=d, id:u32, count:u32?, p:pred",
    "bar.red",
    since="6.0",
    sm=30,
)
row("barrier", "cluster mode:arrive sem?:release|relaxed aligned?", "", "bar.cluster", since="7.8", sm=90)
row("barrier", "cluster mode:wait sem?:acquire aligned?", "", "bar.cluster", since="7.8", sm=90)
row("membar", "scope:cta|gl|sys", "", "fence")
row("membar", "proxy kind:alias", "", "fence.proxy", since="7.5", sm=70)
row("fence", f"sem?:sc|acq_rel scope:{SCOPE}", "", "fence", since="6.0", sm=70)
row("fence", f"sem:acquire|release scope:{SCOPE}", "", "fence", since="8.6", sm=90)
row("fence", "sem:acquire restrict:sync_restrict::shared::cluster scope:cluster", "", "fence", since="8.6", sm=90)
row("fence", "sem:release restrict:sync_restrict::shared::cta scope:cluster", "", "fence", since="8.6", sm=90)
row("fence", "mbarrier_init sem:release scope:cluster", "", "fence", since="8.0", sm=90)
row("fence", "proxy kind:alias", "", "fence.proxy", since="7.5", sm=70)
row("fence", "proxy kind:async space?:global|shared::cta|shared::cluster", "", "fence.proxy", since="8.0", sm=90)
row("fence", f"proxy kind:tensormap::generic sem:release scope:{SCOPE}", "", "fence.proxy", since="8.3", sm=90)
row(
    "fence",
    f"proxy kind:tensormap::generic sem:acquire scope:{SCOPE}",
    "[a], size#:u32",
    "fence.proxy",
    since="8.3",
    sm=90,
)
row(
    "fence",
    "proxy kind:async::generic sem:acquire restrict:sync_restrict::shared::cluster scope:cluster",
    "",
    "fence.proxy",
    since="8.6",
    sm=90,
)
row(
    "fence",
    "proxy kind:async::generic sem:release restrict:sync_restrict::shared::cta scope:cluster",
    "",
    "fence.proxy",
    since="8.6",
    sm=90,
)
