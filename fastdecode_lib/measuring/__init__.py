"""Measurement: time, passes, quality and provenance of decoders, projections and baselines."""
