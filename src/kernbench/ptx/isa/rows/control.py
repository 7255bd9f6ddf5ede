"""Control flow and other instructions without results."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group

group = Group("Control flow", "control")
row = group.row
does = group.does

does("bra", Effects(flow="branch", ends_block=True, orders=False, follows_from="lane"))
does("brx", Effects(flow="indexed branch", ends_block=True, follows_from="lane"))
does("call", Effects(flow="call", ends_block=True, follows_from="lane", forwards=False))
does("ret", Effects(flow="return", ends_block=True, follows_from="lane"))
does("exit", Effects(flow="exit", ends_block=True, follows_from="lane"))
does("trap", Effects(flow="trap", ends_block=True, follows_from="lane"))
_NOTHING = Effects(idle="nothing", orders=False, follows_from="lane")
does("nop", _NOTHING)
does("griddepcontrol", replace(_NOTHING, mutants=("dropped",), event="grid dependency"))
does("nanosleep", Effects(idle="time", follows_from="lane", event="sleep"))
does("setmaxnreg", Effects(follows_from="lane", mutants=("dropped",), event="registers"))

row("bra", "uni?", "->target")
row("brx", "idx uni?", "index!:u32, ->targets", since="6.0", sm=30)
row("call", "uni?", "(results)?, ->callee(), (args)?, ->prototype?")
row("ret", "uni?", "")
row("exit", "", "")
row("trap", "", "")
row("brkpt", "", "", "nop")
row("nanosleep", "type:u32", "duration", since="6.3", sm=70)
row("pmevent", "mask?", "a#:u32", "nop", since="1.4")
row("griddepcontrol", "op:launch_dependents|wait", "", since="7.8", sm=90)
row("setmaxnreg", "op:inc|dec sync aligned type:u32", "count#", "setmaxnreg", since="8.0", sm=90, family="a")
