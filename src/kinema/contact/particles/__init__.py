"""Compliant contact of particles: against shapes, and against each other."""
