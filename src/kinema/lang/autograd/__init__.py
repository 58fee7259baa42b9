"""Programs as operations of torch: inputs, sweeps, rollouts."""
