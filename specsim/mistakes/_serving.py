"""Mistakes of a serving engine around its verification, made by `specsim serve` or named by an audit.

They are in how each path processes rows, in what caches hold after a step, in which text's rows and random
numbers are taken, and in what is reported. Each was seen in an engine, or is a small step from one that
was."""

from specsim.mistakes._base import CATALOGUE, named

MISTAKES = tuple(named(name) for members in CATALOGUE["of serving"].values() for name in members)
