"""Simulation of a server that decodes many requests at once, speculatively: latency, goodput and capacity."""
