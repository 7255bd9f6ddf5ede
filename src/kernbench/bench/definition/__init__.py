"""The definition of a bench: its functions, parameters, inputs and machine."""
