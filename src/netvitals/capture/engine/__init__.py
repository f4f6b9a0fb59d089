"""The machinery behind a measured step: hooks, function mode, names of sites, who is due, and when."""
