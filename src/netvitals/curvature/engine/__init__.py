"""Second-order products of a model: tape, nodes, operators, Lanczos."""
