"""Drafts of a window: tables, heads, and the sources that guess tokens from them."""
