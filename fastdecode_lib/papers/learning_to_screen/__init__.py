"""Paper 001: learning to screen the softmax (L2S)."""
