"""Paper 004: sharp models on dull hardware."""
