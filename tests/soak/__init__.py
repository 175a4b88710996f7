"""Random cases for as long as one likes: lossless decoders against greedy, damaged files, killed commands.

``make soak MINUTES=30 SEED=1`` prints a table of what came of them; the exit status is 1 if anything is at fault.
"""
