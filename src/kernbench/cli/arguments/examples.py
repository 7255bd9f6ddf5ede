"""Examples below a command's help."""


def examples(*commands: str) -> str:
    """The text that help shows last; the mark keeps its lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  $ {command}" for command in commands)
