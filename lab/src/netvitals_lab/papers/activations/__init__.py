"""What theory says of an activation before training, against every reference value of the papers' tables."""
