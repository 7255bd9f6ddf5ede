"""What a program computes with: registers, predicates, numbers, pointers."""
