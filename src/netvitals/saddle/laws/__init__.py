"""The scalar chain and what follows from it: flow, escape times, stages, closures."""
