"""Kinematics: poses and velocities of trees of links."""
