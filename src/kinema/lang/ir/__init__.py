"""The intermediate form: typed scalar SSA of one element, its optimisation and analysis."""
