"""Training: the bundled models, draft tables and draft heads, from a corpus to a model card."""
