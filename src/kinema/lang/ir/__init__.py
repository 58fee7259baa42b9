"""The intermediate form: typed scalar SSA of one element, its clean-up and its analysis."""
