"""The run store: written while training, read while written, readable after a crash."""
