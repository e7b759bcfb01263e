"""What a test returns: frozen dataclasses of numbers."""
