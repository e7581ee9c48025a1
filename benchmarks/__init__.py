"""Benchmarks: ratios to a limit of the machine or to a rival, each within one run."""
