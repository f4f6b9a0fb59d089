"""What measured curvature says: decay, design, low rank, steps, pictures."""
