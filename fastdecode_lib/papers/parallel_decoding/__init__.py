"""Paper 003: parallel decoding (PJ, PGJ and HGJ)."""
