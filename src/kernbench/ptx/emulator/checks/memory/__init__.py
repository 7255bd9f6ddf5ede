"""Accesses to memory and what they bring: bounds, races, undefined values, copies that are still under way."""
