"""Compiled scenes: constant arrays, named parameters, and states."""
