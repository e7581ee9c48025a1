"""Draft-length policies, which choose the number of tokens to draft, simulated on one log of drafts."""
