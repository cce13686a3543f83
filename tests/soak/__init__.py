"""What grows with the number of runs: a server used by several clients at once in every way, and measured again and again."""
