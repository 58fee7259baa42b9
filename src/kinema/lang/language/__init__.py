"""The language as Python: types, functions, markers."""
