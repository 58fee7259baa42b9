"""Readers of model files: strict, bounded in memory, without torch; every refusal is a ModelError with a location."""
