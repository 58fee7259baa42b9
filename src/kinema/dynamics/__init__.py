"""Dynamics: equations of motion of trees of links, and forces on joints, bodies, particles and smoke."""
