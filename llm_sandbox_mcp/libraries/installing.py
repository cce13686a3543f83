"""Libraries for one session: checked here, fetched through a gateway to one index, installed inside the sandbox.

The package manager, and every script of a package, runs in the sandbox of the session, which has no network. During the
installation, a listener on its own loopback leads to a gateway in this process, and the gateway leads only to the
index. If the profile names hosts, the proxy refuses requests of this sandbox meanwhile.
"""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ..aio.tasks import open_tasks
from ..backends.base import Completed, OnBytes, Sandbox, Usage
from ..base.errors import InstallFailed, InvalidArgument, ListeningFailed, PolicyDenied
from ..base.messages import Note, Step
from ..base.results import Library, OnProgress, Status
from ..base.text import one_line
from ..base.units import format_duration
from ..languages.languages import Language, Libraries
from ..languages.modules import as_libraries
from ..languages.places import Places
from ..profile.profile import Profile
from ..runs.verdict import limits_hit
from .installed.downloads import FOLDER, Downloads
from .installed.ruling import LibraryRules
from .listing import list_libraries

if TYPE_CHECKING:
    from .installed.gateway import Gateways


_MOST = 50
"""Maximum libraries of one installation."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LIMITS: Mapping[Status, str] = {
    "out_of_memory": "limits.memory",
    "disk_limit": "limits.disk",
    "inode_limit": "limits.files",
    "process_limit": "limits.pids",
}
"""The keys of the profile that set these limits."""
_CHECK_SECONDS = 10.0
"""Seconds to check which limits a failed installation has reached."""
_LAST_LINES = 12
_LAST_CHARACTERS = 2000
_TOLD = 200
"""Lines of a package manager that are told while it works."""
_LINE = 500
"""Bytes of such a line."""
_NO_ROOM = re.compile("no space left on device", re.IGNORECASE)
"""What every package manager prints when the disk limit is reached; it removes its unfinished files before it ends."""
_ENDS = re.compile(rb"[\r\n]+")


@dataclass(frozen=True, slots=True)
class Change:
    """What an installation left."""

    libraries: tuple[Library, ...]
    """All that are installed in the sandbox now."""
    before: tuple[Library, ...]
    """All that were."""
    replaced: Mapping[Library, Library]
    """Those that were there, also prepared ones, and what code finds instead."""


class Installer:
    """Installs libraries that the profile allows, through the proxies that `environ` names.

    `alone` denies a sandbox all hosts except the index meanwhile.
    """

    def __init__(
        self,
        profile: Profile,
        cache: Path,
        rules: Mapping[str, LibraryRules],
        alone: Callable[[Sandbox], AbstractContextManager[object]] = nullcontext,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._profile = profile
        self._alone = alone
        self._environ = environ or {}
        self._rules = rules
        self._downloads = Downloads(cache / FOLDER)
        self._trusted: ssl.SSLContext | None = None
        """The certificates of package indexes that are trusted; read by the first installation."""
        self._gateways: Gateways | None = None

    def check(self, language: Language, libraries: Sequence[str]) -> tuple[Sequence[str], list[Note]]:
        """The libraries to install for these names, and notes about names that mean others; starts nothing.

        Raises `PolicyDenied` or `InvalidArgument` for libraries that cannot be installed.
        """
        if not libraries:
            return (), []
        if language.handler.libraries is None:
            raise self._without_manager(language, libraries)
        if len(libraries) > _MOST:
            raise InvalidArgument(
                f"libraries has {len(libraries)} names, and the limit is {_MOST} per call", "use several calls"
            )
        libraries, notes = as_libraries(language, libraries, self._profile.language(language.name).opened)
        if libraries and self._profile.server.offline:
            raise PolicyDenied(
                "libraries cannot be installed: this server works offline (server.offline)", "use those that are there"
            )
        rules = self._rules[language.name]
        rules.check_names(libraries)
        rules.check(libraries)
        return libraries, notes

    def _without_manager(self, language: Language, libraries: Sequence[str]) -> PolicyDenied:
        """What to do in a language without a package manager: those whose programs it starts may know these names."""
        cause = f"{language.name} has no package manager here"
        known = {name: self._rules[name] for name in language.handler.companions if name in self._rules}
        fit = [name for name, rules in known.items() if not any(map(rules.misnamed, libraries))]
        if not fit:
            return PolicyDenied(cause, "use python or another language for libraries")
        # Of names that fit most languages, callers want programs more often than modules.
        named = " or ".join([name for name in fit if known[name].manager.programs] or fit)
        cause += ", and finds what libraries of other languages bring"
        return PolicyDenied(cause, Step.INSTALL, library=", ".join(libraries), language=named)

    def ruled(self, language: Language) -> bool:
        """Whether the profile allows only some libraries of the language."""
        return language.name in self._rules and not self._rules[language.name].empty

    async def check_installed(self, sandbox: Sandbox, places: Places) -> None:
        """Raises `PolicyDenied` if a library is in the sandbox that the profile denies, as from a saved session."""
        if not self.ruled(places.language):
            return
        manager = await choose(sandbox, places)
        everything = await list_libraries(sandbox, places, manager.everything or manager.installed)
        if refusal := self._rules[places.language.name].refusal((), everything):
            raise PolicyDenied(*refusal)

    async def install(
        self, sandbox: Sandbox, places: Places, libraries: Sequence[str], on_progress: OnProgress | None = None
    ) -> Change:
        """Installs libraries into one sandbox; returns what is installed there now, and what that changed.

        Raises `InstallFailed`, which ends with the last lines of the package manager.
        """
        manager = await choose(sandbox, places)
        if not libraries:  # all that was asked for is part of the language
            had = await list_libraries(sandbox, places, manager.installed)
            return Change(had, had, {})
        if on_progress is not None:
            await on_progress(f"installing {', '.join(libraries)} with {manager.manager}")
        # Imported here, since only an installation needs an HTTP client, and it would delay every start of the server.
        from .installed.indexes import index_of

        upstream = await index_of(places.language, self._profile)
        problems: list[str] = []
        lines = Lines(manager.manager, on_progress) if on_progress is not None else None
        before = await sandbox.usage()
        had = await list_libraries(sandbox, places, manager.installed)
        try:
            with self._alone(sandbox):
                done = await self._through_gateway(sandbox, places, manager, libraries, upstream, problems, lines)
        except ListeningFailed as error:
            raise InstallFailed(*error.problem) from error
        if lines is not None and lines.error is not None:
            raise lines.error
        if done is None:
            limit = format_duration(self._profile.limits.install_timeout)
            raise InstallFailed(
                f"installing {', '.join(libraries)} took longer than {limit} and was stopped",
                "install fewer at once, or raise limits.install_timeout in the profile",
            )
        if done.exit_code != 0:
            last = _last_lines(done.stderr or done.stdout)
            full = bool(_NO_ROOM.search(last))
            reason = "; ".join([*await _limits_reached(sandbox, before, full=full), *problems, last])
            step = "install fewer or smaller ones, or raise limits.disk in the profile" if full else ""
            raise InstallFailed(f"{manager.manager} could not install {', '.join(libraries)}: {one_line(reason)}", step)
        if self.ruled(places.language):
            everything = await list_libraries(sandbox, places, manager.everything or manager.installed)
            if refusal := self._rules[places.language.name].refusal(libraries, everything):
                raise InstallFailed(f"installing {', '.join(libraries)}: {refusal.cause}", refusal.step)
        have = await list_libraries(sandbox, places, manager.installed)
        if have == had or manager.several:
            return Change(have, had, {})
        given = await list_libraries(sandbox, places, manager.provided) if manager.provided else ()
        old, new = ({library.name: library for library in (*given, *own)} for own in (had, have))
        return Change(have, had, {old[name]: new[name] for name in old.keys() & new.keys() if old[name] != new[name]})

    async def _through_gateway(
        self,
        sandbox: Sandbox,
        places: Places,
        manager: Libraries,
        libraries: Sequence[str],
        upstream: str,
        problems: list[str],
        lines: "Lines | None",
    ) -> Completed | None:
        """Runs the package manager while the gateway is open; returns None if the time ran out."""
        from .installed.gateway import Gateways, index_url, serve_index
        from .installed.index_client import Upstream, open_client, read_certificates

        try:
            index = Upstream.parse(upstream)
        except ValueError as error:
            section = f"languages.{places.language.name}.index"
            raise InstallFailed(f"the package index {error}", f"set {section} in the profile") from error
        # Files of an index on this machine are not cached: they are near enough, and can change under the same name.
        downloads = None if index.host in _LOOPBACK else self._downloads
        self._gateways = gateways = self._gateways or Gateways()
        done: Completed | None = None
        with anyio.move_on_after(self._profile.limits.install_timeout):
            self._trusted = trusted = self._trusted or await read_certificates()
            # The order matters: the server ends first, then the listener, then the client.
            async with (
                open_client(upstream, trusted, self._environ) as client,
                sandbox.listen() as listener,
                open_tasks() as tasks,
            ):
                serve = partial(
                    serve_index,
                    client=client,
                    gateways=gateways,
                    downloads=downloads,
                    files=re.compile(manager.files_pattern),
                    on_problem=problems.append,
                )
                tasks.start_soon(serve, listener, upstream)
                inside = replace(places, index=index_url(listener), network="none")
                words, env = [*inside.argv(manager.install), *libraries], inside.env(sandbox.path)
                done = await sandbox.run(words, env, on_output=lines.stream if lines is not None else None)
                tasks.cancel_scope.cancel()
        return done


class Lines:
    """Tells what a package manager prints, line by line: packages choose it, and can print without end."""

    def __init__(self, manager: str, on_progress: OnProgress) -> None:
        self._manager = manager
        self._on_progress = on_progress
        self._left = _TOLD
        self.error: Exception | None = None
        """What went wrong when a line was told; nothing is told after that."""

    def stream(self) -> OnBytes:
        """What takes one of its outputs."""
        rest = b""

        async def take(part: bytes) -> None:
            nonlocal rest
            if self._left <= 0:
                return
            *lines, rest = _ENDS.split(rest + part)
            if len(rest) > _LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                if text := line[:_LINE].decode(errors="replace").strip():
                    await self._tell(text)

        return take

    async def _tell(self, text: str) -> None:
        self._left -= 1
        if self._left < 0 or self.error is not None:
            return
        try:
            # With the name in front, no package can imitate a line of the server.
            await self._on_progress(f"{self._manager}: {one_line(text)}")
        except Exception as error:  # raised once the package manager has ended, as itself and not in a group
            self.error = error


async def _limits_reached(sandbox: Sandbox, before: Usage, *, full: bool) -> list[str]:
    """A line for each limit that was reached: package managers do not explain well why they failed then."""
    # Processes that a package started can keep a pod too busy to answer.
    with anyio.move_on_after(_CHECK_SECONDS):
        used, fullness = (await sandbox.usage()).since(before), await sandbox.fullness(thorough=False)
        fullness = replace(fullness, disk=fullness.disk or full)
        hit = limits_hit(used, fullness, sandbox.policy)
        return [f"{line} ({_LIMITS[status]} in the profile)" for status, line in hit.items()]
    return []


def _last_lines(output: bytes) -> str:
    last = output[-4 * _LAST_CHARACTERS :]  # a character has at most four bytes, and output can be megabytes
    lines = [line.strip() for line in last.decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:] or "no reason given"


async def choose(sandbox: Sandbox, places: Places) -> Libraries:
    """How to install libraries into a sandbox; raises `InstallFailed`, with the missing programs, if none can."""
    name, first = places.language.name, places.language.handler.libraries
    if first is None:
        raise PolicyDenied(f"{name} has no package manager here")
    tried = []
    for manager in (first, *first.alternatives):
        absent = await sandbox.lacking(places.argv(manager.requires), places.env(sandbox.path))
        if not absent:
            return first.model_copy(update=dict(manager))
        tried.append(" and ".join(absent))
    missing = ", or ".join(tried)
    step = f"install {missing} there"
    if sandbox.image:
        step = "add it to the image, or build one that has it: llm-sandbox-mcp images build"
    raise InstallFailed(
        f"libraries of {name} cannot be installed without {missing}, which {sandbox.origin} does not have", step
    )
