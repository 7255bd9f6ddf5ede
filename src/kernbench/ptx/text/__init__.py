"""PTX as text and as data: lexer, parser, module and printer, and the checkpoints that kernbench writes into PTX."""
