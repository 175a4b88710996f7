"""Checkpoints: folders of settings and weights, the shape of each family of models, and how they are stored."""
