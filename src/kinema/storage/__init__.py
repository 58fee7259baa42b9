"""Save and load models, states, trajectories and dictionaries of tensors."""
