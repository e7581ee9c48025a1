"""Monte Carlo simulation of rules: single steps, whole runs, and comparisons of rules."""
