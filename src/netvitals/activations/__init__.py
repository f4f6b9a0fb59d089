"""What an activation is, and what theory says of it before any training."""
