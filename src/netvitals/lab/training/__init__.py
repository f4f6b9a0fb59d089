"""The one training loop the studies use, and seed-batched ensembles."""
