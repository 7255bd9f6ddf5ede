"""Shared by all rooms: element types, errors, PE commands, queue types, compiled loops and their cache."""
