"""Networks with one argument for the activation and one for the norm."""
