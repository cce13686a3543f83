"""Rules about code: advice against accidents, given before anything runs. The sandbox is the boundary, not these."""
