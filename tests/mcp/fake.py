"""A fake service in memory, for tests of nothing but the shape of requests and answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, cast

from llm_sandbox_mcp.base.errors import UnknownArtifact, UnknownSession
from llm_sandbox_mcp.base.principal import ANONYMOUS, Principal
from llm_sandbox_mcp.base.results import (
    Artifact,
    Execution,
    Installation,
    Output,
    Overview,
    PoolKey,
    PoolStatistics,
    SessionInfo,
)
from llm_sandbox_mcp.files.artifacts import describe
from llm_sandbox_mcp.files.pictures import Pictures, can_be_shown, choose
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.languages.languages import Handler, Language, Languages
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask, Checked
from llm_sandbox_mcp.service.work import Listener, Result, Work
from tests.pictures import png

SESSION = "0" * 32
NOTHING_PRINTED = Execution("ok", 0, Output(""), Output(""), None, 0.001, SESSION, "kept")
NOTHING_INSTALLED = Installation(SESSION, (), ())
POOL = PoolStatistics(
    warm=1,
    warming=0,
    leased=2,
    closing=0,
    keys=(PoolKey(1, 0, 2, 0, "python", ""),),
    max=32,
    waiting=0,
    hits=2,
    misses=0,
    opened=3,
    closed=0,
    failed=0,
    last_error="",
    acquire_ms=0.1,
)
PNG = png(3, 2)
"""An image of 3 x 2 pixels."""


def languages() -> Languages:
    """Python and bash, without the files of their handlers."""
    given: list[dict[str, Any]] = [
        {"name": "python", "title": "Python", "aliases": ["py"], "extension": ".py"},
        {"name": "bash", "title": "Bash", "extension": ".sh"},
    ]
    whole = [
        {**fields, "version_command": ["true"], "stateful": True, "runner": {"argv": ["true"]}} for fields in given
    ]
    return Languages(Language(HANDLERS / fields["name"], Handler.model_validate(fields)) for fields in whole)


@dataclass
class FakeService:
    """Answers each call with what the test has set, and records the calls in `asked`."""

    profile: Profile = field(default_factory=load_profile)
    languages: Languages = field(default_factory=languages)
    stored: dict[str, bytes] = field(default_factory=dict)
    execution: Execution = NOTHING_PRINTED
    installation: Installation = NOTHING_INSTALLED
    failure: Exception | None = None
    forgotten: int = 0
    results_taken: int = 0
    printed: Sequence[str] = ()
    asked: list[Mapping[str, object]] = field(default_factory=list)
    origins: list[tuple[str, ...]] = field(default_factory=list)
    callers: list[Principal] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    drawn: Overview | None = None
    listeners: list[Callable[[str, tuple[str, ...]], None]] = field(default_factory=list)

    def service(self) -> Service:
        """The fake as the type that the server takes."""
        return cast(Service, self)

    @property
    def files(self) -> Self:
        """The fake also stands in for the files of the service."""
        return self

    @property
    def keeping(self) -> Self:
        """The fake also stands in for what keeps sessions; none is put aside."""
        return self

    async def wake(self, _caller: Principal, _session_id: str) -> None:
        """Finds nothing."""

    async def number(self, _caller: Principal) -> int:
        """None is put aside."""
        return 0

    async def bring_back(self, _caller: Principal, _session_id: str) -> None:
        """Finds nothing."""

    async def discard(self, _caller: Principal, _session_id: str) -> bool:
        """Finds nothing."""
        return False

    @property
    def overviews(self) -> Self:
        """The fake also stands in for the overviews of the service."""
        return self

    @property
    def sessions(self) -> Self:
        """The fake also stands in for the sessions of the service."""
        return self

    def on_artifacts_changed(self, listener: Callable[[str, tuple[str, ...]], None]) -> None:
        self.listeners.append(listener)

    @property
    def door(self) -> Self:
        """The fake also stands in for the door of the service, and for the only work."""
        return self

    async def check(self, ask: Ask) -> Checked:
        self.origins.append(ask.origin)
        self.callers.append(ask.caller)
        given = {part.name: getattr(ask, part.name) for part in fields(ask)}
        del given["origin"], given["caller"]
        self.asked.append(given)
        return Checked(ask, self.languages[ask.language], None)

    def start(self, checked: Checked) -> Self:
        self.installs = checked.ask.code is None
        return self

    async def wait(self, seconds: float, listener: Listener) -> Result:
        if self.failure:
            raise self.failure
        assert listener.on_output is not None
        for text in self.printed:
            await listener.on_output("stdout", text)
        return self.installation if self.installs else self.execution

    @property
    def session_id(self) -> str:
        return self.execution.session_id

    ended = True
    installs = False

    def forget(self, run: object) -> None:
        self.forgotten += 1

    def taken(self) -> None:
        self.results_taken += 1

    def of_session(self, session_id: str) -> tuple[Work, ...]:
        return ()

    async def copy_in(self, session_id: str, path: str, data: bytes) -> Artifact:
        self.stored[path] = data
        return self._artifact(path)

    async def copy_out(self, session_id: str, path: str) -> Artifact:
        return self._artifact(path)

    async def read_artifact(
        self, session_id: str, name: str, offset: int = 0, length: int = 1 << 30
    ) -> tuple[Artifact, bytes]:
        return self._artifact(name), self.stored[name][offset:][:length]

    async def pictures(self, session_id: str, artifacts: Sequence[Artifact]) -> Pictures:
        return await choose(artifacts, self._picture)

    async def of_artifacts(self, session_id: str, artifacts: Sequence[Artifact]) -> Overview | None:
        return self.drawn

    async def _picture(self, name: str) -> bytes | None:
        self.looked_at.append(name)
        data = self.stored.get(name, b"")
        return data if can_be_shown(data) else None

    def artifacts(self, session_id: str) -> tuple[Artifact, ...]:
        if session_id != SESSION:
            raise UnknownSession("session_id: no such session; leave it out to open a new one")
        return tuple(self._artifact(name) for name in self.stored)

    def list(self) -> tuple[SessionInfo, ...]:
        return (SessionInfo(SESSION, ANONYMOUS, False, ("python",), 1, 1.0, 600.0),)

    def pool(self) -> PoolStatistics:
        return POOL

    def preparing(self) -> Mapping[str, str]:
        return {}

    async def close(self, session_id: str) -> None:
        self.asked.append({"close": session_id})

    async def describe_language(self, name: str) -> dict[str, object]:
        return {"name": self.languages[name].name}

    def _artifact(self, name: str) -> Artifact:
        if name not in self.stored:
            raise UnknownArtifact(f"names: unknown artifact {name!r}")
        return describe(name, self.stored[name])
