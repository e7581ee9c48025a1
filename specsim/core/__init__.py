"""Foundations: arrays of probabilities, random streams, statistics of counts, compiled kernels, files."""
