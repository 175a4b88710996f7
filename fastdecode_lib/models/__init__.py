"""Networks that turn a source and a target prefix into hidden vectors."""
