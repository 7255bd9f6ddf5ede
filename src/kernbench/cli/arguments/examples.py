"""Examples below a command's help."""


def examples(*commands: str) -> str:
    """The text at the end of the help; the mark keeps its lines unwrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  $ {command}" for command in commands)
