"""Losses and gradient checks for fitting models to observations."""
