"""Trajectory optimisation: controls that minimise a cost, open loop or on a receding horizon."""
