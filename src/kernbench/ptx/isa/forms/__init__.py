"""The rows of the ISA table as data, and the language in which they are written."""
