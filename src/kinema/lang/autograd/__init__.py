"""Programs as torch operations: inputs, sweeps, rollouts."""
