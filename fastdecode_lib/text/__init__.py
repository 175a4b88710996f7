"""Text, its words and its sentences: tokenizers and vocabularies, the corpus, and the project's own sentences."""
