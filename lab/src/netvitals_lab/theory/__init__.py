"""Theory without a user's model in it: what the studies of the papers rest on."""
