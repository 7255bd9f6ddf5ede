"""From a method call to an instruction: its form in the ISA table, the body it goes to, what it needs."""
