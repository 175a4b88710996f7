"""Chen et al. (2019): learning to screen the softmax (L2S)."""
