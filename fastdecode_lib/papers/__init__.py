"""Papers: the tables and figures of each, as functions, with the framework that makes, keeps and shows them."""
