"""Code with half of an emoji, as programs in JavaScript send it that cut a text anywhere, and what becomes of it."""

CUT = "print('cut: {}')"
"""The code, with a gap for the half."""
CODE = CUT.format("\ud83d")
ENCODED = {"an escape of half a pair": rb"\ud83d", "half of the bytes": b"\xf0\x9f"}
"""The half in JSON."""
PRINTED = "cut: \N{REPLACEMENT CHARACTER}\n"
NOTE = "U+FFFD in code stands for characters that were not valid Unicode; if they matter, send them whole, in UTF-8"
