"""Verification of the engine: closed forms, twins in other engines, random scenes, secants, convergence."""
