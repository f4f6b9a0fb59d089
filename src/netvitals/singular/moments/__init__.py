"""Second moments of a layer: K-FAC factors and what is read off them."""
