"""Losses, and what fits models to observations."""
