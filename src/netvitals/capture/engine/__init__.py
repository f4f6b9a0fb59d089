"""The machinery behind a measured step: hooks, the trace and its plan, names of sites, who is due, and when."""
