"""What a simulation knows: arrays and named parameters."""
