"""Measurement: time, passes, quality and provenance, and what is compared with what."""
