"""The Hessian between layers: H = GN + T, exact and stochastic."""
