"""Ranks, re-drawing, tests of uniformity and intervals, on tensors alone."""
