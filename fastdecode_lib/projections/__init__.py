"""Ways from hidden vectors to candidate tokens."""
