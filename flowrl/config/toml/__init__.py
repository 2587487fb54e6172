"""A TOML file: its text and where each key stands, and its tables made into classes, strictly."""
