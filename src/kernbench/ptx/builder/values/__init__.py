"""Values of builder programs: registers, predicates, numbers, pointers."""
