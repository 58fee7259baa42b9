"""MuJoCo's soft constraints: rows, cones, and Newton's method over joint accelerations."""
