"""Compiled kernels, built by numba when first used and kept on disk."""
