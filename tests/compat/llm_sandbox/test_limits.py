"""A blocking session whose code reaches a limit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp import SandboxSession
from llm_sandbox_mcp.base.results import Status
from llm_sandbox_mcp.compat.llm_sandbox.exceptions import SandboxTimeoutError
from tests.reached import LIMITS, PROFILE

pytestmark = pytest.mark.usefixtures("control_groups")


@pytest.fixture
def small(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxSession]:
    profile = tmp_path / "small.toml"
    places = f'[server]\ncache = "{folder}/cache"\nruntime = "{folder}/runtime"\n'
    profile.write_text(f"{PROFILE}[languages.python]\nlibraries = []\n{places}")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(profile))
    with SandboxSession(lang="python") as session:
        yield session


@pytest.mark.parametrize("status", LIMITS)
def test_a_limit_is_reported_after_what_the_code_wrote_to_stderr(small: SandboxSession, status: Status) -> None:
    limit = LIMITS[status]
    if status == "timeout":
        with pytest.raises(SandboxTimeoutError, match=r"the code ran longer than 0\.5 s and was stopped"):
            small.run(limit.code, timeout=limit.timeout)
        return
    done = small.run(limit.code, timeout=limit.timeout)
    assert done.exit_code != 0, done
    assert done.stderr.splitlines()[-1].startswith(f"{status}: {limit.note}"), done.stderr[-2000:]
