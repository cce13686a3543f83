"""How often tests try what depends on a moment or on chance: SANDBOX_EFFORT times what `make test` does."""

import os

EFFORT = int(os.environ.get("SANDBOX_EFFORT", "1"))
"""10 in `make test-all`."""
