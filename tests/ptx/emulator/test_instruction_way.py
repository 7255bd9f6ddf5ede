"""An instruction on its way from text to finding seldom comes back to a folder that it had left."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "instruction_way.py"
# how often the way of the racing store comes back to a folder; it only falls
RETURNS = 10


def load_tool():
    spec = importlib.util.spec_from_file_location("instruction_way", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_way_of_an_instruction_comes_back_seldom():
    tool = load_tool()
    folders = [str(Path(module).parent) for module, _ in tool.run()]
    stays, back = tool.returns(folders)
    assert {"text", "validation", "emulator/instructions", "emulator/memory", "emulator/checks"} <= set(stays)
    assert back <= RETURNS


def test_returns_are_counted():
    tool = load_tool()
    assert tool.returns(["a", "a", "b", "a", "a", "c", "b"]) == (["a", "b", "a", "c", "b"], 2)
    assert tool.returns(["a", "b", "b"]) == (["a", "b"], 0)
