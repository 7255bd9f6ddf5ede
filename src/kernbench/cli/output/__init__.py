"""Output of commands: text on the console, JSON documents, arrays from inside a run, acknowledged findings."""
