"""Benchmarks: what the engines, the projections and the pictures take on this machine."""
