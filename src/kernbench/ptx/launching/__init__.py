"""What a launch is given: arrays on a device, grid and block sizes, arguments, tensor maps."""
