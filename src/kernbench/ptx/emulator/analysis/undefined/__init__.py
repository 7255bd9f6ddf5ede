"""Which instructions follow undefined values, and the steps that do."""
