"""What a bench is: its functions, parameters, inputs and machine."""
