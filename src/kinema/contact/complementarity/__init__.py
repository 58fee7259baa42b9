"""Contact as a complementarity problem: constraint rows, Newton's method, projected Gauss-Seidel (PGS), impacts."""
