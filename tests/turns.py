"""Which engine runs which case if each case runs on one engine only: the engines take turns, so each gets its share.

The same for the two versions of the MCP protocol.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping

import pytest

from llm_sandbox_mcp.backends import BACKENDS

from .engines import kubeconfig, required
from .engines.cluster import ON_CLUSTER


def left_out(items: Iterable[pytest.Item], by: Callable[[pytest.Item], Hashable]) -> set[pytest.Item]:
    """All items except one of each group that `by` treats as the same.

    The remaining one runs on an engine that is available and is not expected to fail it.
    """
    items = list(items)
    groups: dict[Hashable, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if _available(backend := backend_of(item)) and _has_image(item) and not item.get_closest_marker("xfail"):
            groups[by(item)].setdefault(backend, item)
    chosen = set()
    for number, cases in enumerate(groups.values()):
        engines = [name for name in ("", *BACKENDS) if name in cases]
        chosen.add(cases[engines[number % len(engines)]])
    return {item for item in items if item not in chosen}


def by_language(item: pytest.Item) -> Hashable:
    """A key for all cases of a test in one language."""
    return _test(item), language_of(item)


def by_case(item: pytest.Item) -> Hashable:
    """A key for one case of a test on all engines."""
    return _test(item), item.nodeid.partition("[")[2].replace(backend_of(item), "", 1)


def has_turn(item: pytest.Item) -> bool:
    """Whether it is the turn of this case's protocol; each test has its own turn, the same in every process."""
    era = arguments(item).get("era")
    return era is None or (era == "legacy") == bool(zlib.crc32(_test(item).encode()) % 2)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def backend_of(item: pytest.Item) -> str:
    """The backend of a test case; empty if it has none."""
    return next((name for name in BACKENDS if name in arguments(item).values()), "")


def language_of(item: pytest.Item) -> str:
    """The language of a test case; Python if it has none."""
    return str(arguments(item).get("language", "python"))


def _available(backend: str) -> bool:
    """Whether the backend can be used. Only the environment decides: it is the same in all processes that run tests."""
    return backend != "kubernetes" or bool(kubeconfig()) or "kubernetes" in required()


def _has_image(item: pytest.Item) -> bool:
    return backend_of(item) != "kubernetes" or language_of(item) in ON_CLUSTER


def arguments(item: pytest.Item) -> Mapping[str, object]:
    """The arguments of a test case."""
    call = getattr(item, "callspec", None)
    return call.params if call else {}
