"""Steps of a fixed pair on an NVIDIA GPU, with the same counts as on the CPU."""
