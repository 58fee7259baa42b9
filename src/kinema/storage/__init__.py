"""Models, trajectories and dictionaries of tensors in files."""
