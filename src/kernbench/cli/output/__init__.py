"""What a command gives: text on the console, a JSON document, arrays from inside a run, acknowledged findings."""
