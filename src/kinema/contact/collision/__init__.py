"""Collision detection: the narrow phase, one kernel per pair of shape kinds."""
