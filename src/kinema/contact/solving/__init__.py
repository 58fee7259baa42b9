"""Constraint rows and their solvers: Newton's method, projected Gauss-Seidel (PGS), impacts."""
