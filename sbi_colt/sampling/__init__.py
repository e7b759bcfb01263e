"""Posterior, prior and simulator in, draws out."""
