"""What is done with matrices known by their products: diagonals, damped inverses, Kronecker factors, influence."""
