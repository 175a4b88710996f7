"""Tokens that try to be something else than text."""

TOKENS = [
    "<img src=x onerror=\"window.owned='img'\">",
    "<script>window.owned='script'</script>",
    "</script>",
    "[x](javascript:window.owned='link')",
    "<s>",
    "$x^2$",
    "%{x}",
    "a\u202eb",
    "\u2066c\u2069",
    "\x00\x07\x1b[31m",
    "👩\u200d💻",
    "مرحبا",
    "東京",
    "long" * 60,
    "\"quotes' & &amp; ampersands",
    "]]><svg onload=\"window.owned='svg'\">",
]
SHOWN = {
    "a\u202eb": "a⟨U+202E⟩b",
    "\u2066c\u2069": "⟨U+2066⟩c⟨U+2069⟩",
    "\x00\x07\x1b[31m": "⟨U+0000⟩⟨U+0007⟩⟨U+001B⟩[31m",
}


def shown(token: str) -> str:
    """What a reader must see: the token itself, or its visible escape."""
    return SHOWN.get(token, token)
