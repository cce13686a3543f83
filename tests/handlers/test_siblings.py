"""Sandboxes that are forks of one interpreter, with libraries imported, have no random number in common."""

import ast

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.backend import EmbeddedBackend
from llm_sandbox_mcp.pool.plan import Key
from llm_sandbox_mcp.testing.asking import execute
from tests.effort import tries
from tests.engines import need

from .serving import service_with_default_libraries

pytestmark = pytest.mark.anyio

DRAW = """
import os, random, secrets, ssl, sys, tempfile, uuid
import numpy
drawn = {
    "random": random.random(),
    "a generator of random": random.Random().random(),
    "numpy's old generator": numpy.random.rand(),
    "numpy's new generator": numpy.random.default_rng().random(),
    "secrets": secrets.token_hex(8),
    "uuid1": str(uuid.uuid1()),
    "uuid4": str(uuid.uuid4()),
    "tempfile": tempfile.mktemp(),
    "ssl": ssl.RAND_bytes(8).hex(),
    "os.urandom": os.urandom(8).hex(),
}
drawn, hash("x"), "pandas" in sys.modules
"""


REHEARSED = """
import sandbox_preload
for text in sandbox_preload._REHEARSED.values():
    exec(text, {})  # an error would be passed over where it is only about time
len(sandbox_preload._REHEARSED)
"""


async def test_siblings_draw_different_random_numbers() -> None:
    await need("embedded")
    count = tries(200)
    with anyio.fail_after(200):
        async with service_with_default_libraries("embedded") as service:
            assert isinstance(service.backend, EmbeddedBackend)
            await service.warm(["python"])
            await service.pool_until(lambda now: bool(now.keys and now.keys[0].preload and now.keys[0].preload.modules))
            zygote = service._pool._preloads.zygote(Key("python", "", service.profile.policy()))
            assert zygote is not None and service.backend._zygotes is not None
            await service.backend.probe()
            assert await service.backend._zygotes.settled(zygote)
            for _ in range(2):  # the first may be warm since before
                await execute(service, "1", keep_session=False)
            found = []
            for _ in range(count):
                ran = await execute(service, DRAW, keep_session=False)
                assert ran.status == "ok" and ran.result is not None, ran
                found.append(ast.literal_eval(ran.result.replace("np.float64", "")))
            rehearsed = await execute(service, REHEARSED)
    assert (rehearsed.status, rehearsed.result) == ("ok", "1"), rehearsed
    assert {(seed, loaded) for _, seed, loaded in found} == {(found[0][1], True)}, "not all of them are siblings"
    for kind in found[0][0]:
        assert len({drawn[kind] for drawn, *_ in found}) == count, kind
