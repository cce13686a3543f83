"""How often tests repeat what depends on timing or chance: SANDBOX_EFFORT times as often as `make test` does."""

import os

_EFFORT = float(os.environ.get("SANDBOX_EFFORT", "1"))
"""0.1 in `make check`, 10 in `make test-all`."""
EFFORT = max(1, round(_EFFORT))
"""For tests that can be repeated, but not in part."""


def tries(usual: int) -> int:
    """How often to try something that `make test` tries this often."""
    return max(1, round(usual * _EFFORT))
