"""How often tests repeat what depends on timing or chance: SANDBOX_EFFORT times as often as `make test` does."""

import os

EFFORT = int(os.environ.get("SANDBOX_EFFORT", "1"))
"""10 in `make test-all`."""
