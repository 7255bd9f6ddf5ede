"""Runs the blocks of submitted tasks on cores: turns, cores that are held, and looking inside one that runs."""
