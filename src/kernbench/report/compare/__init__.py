"""Several runs beside each other: what they are called, what differs, which is fastest and why."""
