"""Laws: what must hold of every model, projection and decoder, checked on random cases."""
