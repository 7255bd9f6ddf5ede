"""Arguments of commands: shared arguments and options, shell completion, examples below the help."""
