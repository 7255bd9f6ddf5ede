"""Which elements of tensors on the device are undefined, through torch's operators, and where their values are used."""
