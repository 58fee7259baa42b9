"""Time integration of joints and particles, substeps, and the Jacobian of a step."""
