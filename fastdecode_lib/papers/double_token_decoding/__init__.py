"""Imamura and Sumita (2020): double-token bidirectional decoding."""
