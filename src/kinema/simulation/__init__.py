"""Time stepping: composes detection, dynamics, contact and integration into steps and rollouts."""
