"""Studies: what a command measures and prints."""
