"""Differentiable rendering."""
