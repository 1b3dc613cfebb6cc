"""Representation learning without labels, and what the representation is worth (the paper's section 5.3)."""
