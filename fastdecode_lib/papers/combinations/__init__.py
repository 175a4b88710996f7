"""Combinations: what the papers give together."""
