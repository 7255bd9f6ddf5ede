"""Machine instructions that PTX usually becomes, where no assembler is at hand."""
