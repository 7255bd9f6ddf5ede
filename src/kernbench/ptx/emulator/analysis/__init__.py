"""What can be known of a program before it runs."""
