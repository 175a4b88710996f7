"""Amer et al. (2022): vocabulary projection by clusters and active sets."""
