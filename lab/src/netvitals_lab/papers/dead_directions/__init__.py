"""Dead directions: the rate primitive, K-FAC rates of every architecture, and optimisers that respect symmetries."""
