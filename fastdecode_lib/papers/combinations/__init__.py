"""Combinations of the papers' methods."""
