"""Which engine runs which case of the tests that all engines share: each case one of them, beside bubblewrap.

What a case asks of one engine it asks of the next one too, and of most no engine is asked at all: a name that is refused, say.
The engines take turns, and over all tests each gets its share.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

import pytest

from llm_sandbox_mcp.backends import BACKENDS

from .engines import kubeconfig, required
from .engines.cluster import ON_CLUSTER


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Those that others stand for."""
    tests: dict[str, dict[str, dict[str, pytest.Item]]] = defaultdict(lambda: defaultdict(dict))
    for item in items:
        if backend := backend_of(item):
            test, _, arguments = item.nodeid.partition("[")
            tests[test][arguments.replace(backend, "", 1)][backend] = item
    return {item for test, cases in tests.items() for item in _others(test, cases.values())}


def _others(test: str, cases: Iterable[Mapping[str, pytest.Item]]) -> Iterator[pytest.Item]:
    """Of one test. The first turn goes by its name, so that it is the same whatever else is run."""
    turns = _engines()
    for number, case in enumerate((case for case in cases if "embedded" in case), crc32(test.encode())):
        engines = [name for name in turns if name in case and _has_image(name, case[name])]
        for name in turns:
            if name in case and engines and name != engines[number % len(engines)]:
                yield case[name]


def backend_of(item: pytest.Item) -> str:
    """The one that it is a case of; empty if of none."""
    return next((name for name in BACKENDS if name in _arguments(item).values()), "")


def _engines() -> list[str]:
    """Those that take turns. It goes by the environment, which is the same in all processes that share the tests."""
    cluster = kubeconfig() or "kubernetes" in required()
    return [name for name in BACKENDS if name != "embedded" and (cluster or name != "kubernetes")]


def _has_image(backend: str, item: pytest.Item) -> bool:
    return backend != "kubernetes" or _arguments(item).get("language", "python") in ON_CLUSTER


def _arguments(item: pytest.Item) -> Mapping[str, object]:
    call = getattr(item, "callspec", None)
    return call.params if call else {}
