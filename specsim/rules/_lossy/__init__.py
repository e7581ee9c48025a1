"""Rules that emit another distribution than the target's, and declare which."""
