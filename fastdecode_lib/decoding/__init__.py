"""Ways from candidates to tokens: each decoder is a frozen record of settings with a generator of passes."""
