"""Paper 000: vocabulary projection by clusters and active sets."""
