"""What machines of every target say of themselves is what they hold to."""

import re

import pytest

from kernbench.common.errors import MachineError
from kernbench.targets import registry

MACHINES = [
    pytest.param(target.machines, name, id=f"{target.name}:{name}")
    for target in registry.with_machines()
    for name in target.machines.bundled()
]


@pytest.mark.parametrize(("machines", "name"), MACHINES)
def test_a_key_takes_0_where_its_range_begins_with_it(machines, name):
    machine = machines.load(name)
    known = machine.keys()
    asked = [key for key in known if re.match(r"(more than )?0(?![.\d])", key.allowed)]
    assert asked
    text = machine.to_toml()
    for key in asked:
        if key.allowed.startswith("more than"):
            with pytest.raises(MachineError, match=f"{re.escape(key.name)} = 0"):
                machine.override({key.name: 0})
        else:
            machine.override({key.name: 0})
        assert key.allowed in text
