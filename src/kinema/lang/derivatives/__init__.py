"""Derivatives of the intermediate form: reverse mode, forward mode, `grad`."""
