"""Models, contexts and runs that several papers measure on."""
