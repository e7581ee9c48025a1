"""Rules that emit another law than the target's, and declare which."""
