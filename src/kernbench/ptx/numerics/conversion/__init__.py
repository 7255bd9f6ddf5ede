"""cvt, between scalar types and to and from packed ones."""
