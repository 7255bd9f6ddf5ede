"""What a command takes: arguments and options that several share, what a shell completes, examples below the help."""
