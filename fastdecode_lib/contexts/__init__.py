"""Contexts: hidden vectors recorded from a model, and the screens that are fitted on them."""
