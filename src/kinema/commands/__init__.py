"""The command line and its work."""
