"""Running studies: trials, claims, verdicts, the results file, the claims page."""
