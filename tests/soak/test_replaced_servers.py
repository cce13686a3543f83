"""Sessions outlive their servers. `python -m tests.soak.replaced_servers` does the same for longer, with more sessions."""

from random import Random

import pytest

from tests.engines import host_folder, need

from .replaced_servers import Soak, written
from .test_soak import SECONDS


@pytest.mark.only_in_all
@pytest.mark.anyio
@pytest.mark.timeout(300 + 2 * SECONDS)
async def test_sessions_answer_rightly_or_announce_a_loss_while_servers_come_and_go() -> None:
    await need("embedded")
    with host_folder() as folder:
        soak = Soak(written(folder, 20, idle=5, save_timeout=10), 20, Random(0))
        await soak.run(SECONDS, every=SECONDS / 6)
    assert not soak.tally.wrong
    assert soak.tally.counts["answers right"]
    assert soak.tally.first
