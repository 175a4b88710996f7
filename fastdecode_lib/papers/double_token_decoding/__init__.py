"""Paper 002: double-token bidirectional decoding."""
