"""What a launch takes: arrays with an address, shapes, arguments, tensor maps."""
