"""Teacher-student networks of the theory, many at once."""
