"""PTX text to data and back: lexer, parser, module, printer; and what is written in it for the emulator."""
