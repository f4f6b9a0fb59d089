"""Papers as experiments: studies, claims and verdicts, and the engines that run them."""
