"""What every room may use: element types, errors, the commands of a processing element, the queues' vocabulary."""
