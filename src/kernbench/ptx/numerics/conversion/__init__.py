"""cvt, between scalar types and of packed ones."""
