"""Operations across the lanes of a warp: shuffles, votes, reductions."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group

group = Group("Warp operations", "warp")
row = group.row
does = group.does

_EXCHANGE = Effects(ends_block=True, orders=False, follows_from="warp", exchanges=True, forwards=False)
does("shfl", replace(_EXCHANGE, law="shuffle"))
does("redux", replace(_EXCHANGE, law="reduction"))
does("vote match", _EXCHANGE)
does("elect", replace(_EXCHANGE, discardable=True))
# waits for nobody: returns the lanes that are active
does("activemask", replace(_EXCHANGE, ends_block=False, forwards=True))

row("shfl", "sync mode:up|down|bfly|idx type:b32", "=d|p:pred?, a, b:b32, c:b32, mask:u32", since="6.0", sm=30)
row("vote", "sync mode:all|any|uni type:pred", "=d:pred, a:pred, mask:u32", since="6.0", sm=30)
row("vote", "sync mode:ballot type:b32", "=d, a:pred, mask:u32", since="6.0", sm=30)
row("match", "mode:any sync type:b32|b64", "=d:u32, a, mask:u32", since="6.0", sm=70)
row("match", "mode:all sync type:b32|b64", "=d:u32|p:pred?, a, mask:u32", since="6.0", sm=70)
row("redux", "sync op:add|min|max type:u32|s32", "=d, a, mask:u32", since="7.0", sm=80)
row("redux", "sync op:and|or|xor type:b32", "=d:u32, a:u32, mask:u32", since="7.0", sm=80)
row("redux", "sync op:min|max abs? NaN? type:f32", "=d, a, mask:u32", since="8.6", sm=100, family="100f")
row("activemask", "type:b32", "=d", since="6.2", sm=30)
row("elect", "sync", "=d:u32|p:pred, mask:u32", since="8.0", sm=90)
