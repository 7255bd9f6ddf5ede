"""From a method call to an instruction: its form in the ISA table, the function body, and required targets."""
