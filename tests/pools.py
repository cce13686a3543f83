"""A pool on a backend, without a service."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.backends.base import Backend, Sandbox
from llm_sandbox_mcp.base.results import PoolStatistics
from llm_sandbox_mcp.host.audit import Audit
from llm_sandbox_mcp.network.proxy import Proxy
from llm_sandbox_mcp.pool.pool import Pool, WarmUp
from llm_sandbox_mcp.pool.preloads import FindZygote, Preloads
from llm_sandbox_mcp.profile.profile import load_profile


def one_warm(now: PoolStatistics) -> bool:
    return (now.warm, now.warming, now.closing) == (1, 0, 0)


@asynccontextmanager
async def open_pool(
    backend: Backend,
    warm_up: WarmUp,
    *,
    within: float = 30,
    preloads: Mapping[str, Sequence[str]] | None = None,
    zygote_of: FindZygote | None = None,
    **changes: object,
) -> AsyncIterator[Pool]:
    """Opens a pool with the settings of the default profile, except `changes`; its sandboxes are gone at the end.

    `within` is how many seconds it can be open at most; `preloads` are the modules that its interpreters import, and
    `zygote_of` makes the zygotes that have them.
    """
    limits = load_profile().pool.model_copy(update=changes)
    with anyio.fail_after(within):
        async with open_tasks() as owners, open_tasks() as timers:
            pool = Pool(backend, limits, warm_up, _attach, owners, Preloads(preloads or {}, zygote_of))
            timers.start_soon(pool.serve)
            try:
                yield pool
            finally:
                pool.close()
                timers.cancel_scope.cancel()


@asynccontextmanager
async def _attach(sandbox: Sandbox, _language: str) -> AsyncIterator[None]:
    async with Proxy(Audit()).attached(sandbox):
        yield
