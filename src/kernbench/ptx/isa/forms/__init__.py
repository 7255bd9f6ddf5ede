"""What a row of the ISA table is, and the language in which it is written."""
