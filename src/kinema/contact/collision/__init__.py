"""Collision detection: the narrow phase, pair by pair of shape kinds."""
