"""Benchmarks of the engines, the projections and the pictures on this machine."""
