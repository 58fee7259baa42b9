"""Steps and rollouts: the composition of physics, nothing else."""
