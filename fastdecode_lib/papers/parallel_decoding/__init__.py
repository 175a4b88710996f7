"""Santilli et al. (2023): parallel decoding (PJ, PGJ and HGJ)."""
