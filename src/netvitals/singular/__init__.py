"""Dead directions: Fisher degeneracy, KL order, K-FAC rates, learning coefficients."""
