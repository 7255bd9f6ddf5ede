"""Control flow and the rest."""

from kernbench.ptx.isa.forms.syntax import Group

group = Group("Control flow", "control")
row = group.row

row("bra", "uni?", "->target")
row("brx", "idx uni?", "index!:u32, ->targets", since="6.0", sm=30)
row("call", "uni?", "(results)?, ->callee(), (args)?, ->prototype?")
row("ret", "uni?", "")
row("exit", "", "")
row("trap", "", "")
row("brkpt", "", "", "nop")
row("nanosleep", "type:u32", "duration", since="6.3", sm=70)
row("pmevent", "mask?", "a#:u32", "nop", since="1.4")
row("griddepcontrol", "op:launch_dependents|wait", "", "nop", since="7.8", sm=90)
row("setmaxnreg", "op:inc|dec sync aligned type:u32", "count#", "setmaxnreg", since="8.0", sm=90, family="a")
