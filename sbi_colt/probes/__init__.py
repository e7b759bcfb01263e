"""Probes: one number for every member of a bag."""
