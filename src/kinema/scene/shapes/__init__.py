"""Procedural shapes."""
