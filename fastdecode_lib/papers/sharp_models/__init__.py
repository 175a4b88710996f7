"""Devlin (2017): sharp models on dull hardware."""
