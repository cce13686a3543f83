"""Libraries for one session: checked here, fetched through a gateway to one index, installed inside the sandbox.

The package manager, and every script of a package, runs in the sandbox of the session, which has no network: for the
time of the installation, a listener on its own loopback leads to a gateway in this process, and that to the index only.
The proxy of a profile that names hosts serves nobody there meanwhile.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from ..backends.base import Completed, Sandbox, Usage
from ..errors import InstallFailed, InvalidArgument, ListeningFailed, PolicyDenied, quoted
from ..escaping import one_line
from ..languages import Language, Libraries
from ..places import Places
from ..profile import Profile
from ..results import Library, OnProgress, Status
from ..runs.verdict import limits_hit
from ..tasks import open_tasks
from ..units import format_duration
from .choosing import choose
from .downloads import FOLDER, Downloads
from .installed import list_libraries
from .ruling import LibraryRules

_MOST = 50
"""Libraries of one installation."""
_LONGEST = 200
"""Characters of one name and version; package indexes allow no longer names."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LIMITS: Mapping[Status, str] = {
    "out_of_memory": "limits.memory",
    "disk_limit": "limits.disk",
    "inode_limit": "limits.files",
    "process_limit": "limits.pids",
}
"""Where a profile sets them."""
_LOOK = 10.0
"""Seconds for a look at the limits that a failed installation has reached."""
_LAST_LINES = 12
_LAST_CHARACTERS = 2000


class Installer:
    """Installs libraries as the profile allows; `alone` keeps a sandbox from all but their index meanwhile."""

    def __init__(
        self,
        profile: Profile,
        cache: Path,
        rules: Mapping[str, LibraryRules],
        alone: Callable[[Sandbox], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._profile = profile
        self._alone = alone
        self._rules = rules
        self._downloads = Downloads(cache / FOLDER)

    def check(self, language: Language, libraries: Sequence[str]) -> None:
        """Raises `PolicyDenied` or `InvalidArgument` for what cannot be a library; starts nothing."""
        if not libraries:
            return
        manager = language.handler.libraries
        if manager is None:
            raise PolicyDenied(
                f"{language.name} has no package manager here; use python or another language for libraries"
            )
        if len(libraries) > _MOST:
            raise InvalidArgument(
                f"libraries has {len(libraries)} names; the limit is {_MOST} per call: use more calls"
            )
        rules = self._rules[language.name]
        for library in libraries:
            if rules.opens(library):
                continue
            if len(library) > _LONGEST or not re.fullmatch(manager.name_pattern, library):
                raise InvalidArgument(
                    f"libraries: {quoted(library)} is not a plain name with an optional version for {manager.manager}; "
                    f"options, URLs, paths and more than {_LONGEST} characters are refused"
                )
        rules.check(libraries)

    def ruled(self, language: Language) -> bool:
        """Whether the profile lets only some libraries of the language in."""
        return language.name in self._rules and not self._rules[language.name].empty

    async def install(
        self, sandbox: Sandbox, places: Places, libraries: Sequence[str], on_progress: OnProgress | None = None
    ) -> tuple[Library, ...]:
        """Installs into one sandbox and returns what is installed there now.

        Raises `InstallFailed`, which says which index and ends with the package manager's last lines.
        """
        manager = await choose(sandbox, places)
        if on_progress is not None:
            await on_progress(f"installing {', '.join(libraries)} with {manager.manager}")
        # Only an installation needs an HTTP client: its import would delay every start of the server.
        from .indexes import index_of

        upstream = await index_of(places.language, self._profile)
        problems: list[str] = []
        before = await sandbox.usage()
        try:
            with self._alone(sandbox):
                done = await self._through_gateway(sandbox, places, manager, libraries, upstream, problems)
        except ListeningFailed as error:
            raise InstallFailed(str(error)) from error
        if done is None:
            limit = format_duration(self._profile.limits.install_timeout)
            raise InstallFailed(
                f"installing {', '.join(libraries)} took longer than {limit} and was stopped; "
                "install fewer at once, or raise limits.install_timeout in the profile"
            )
        if done.exit_code != 0:
            causes = [*await _reached(sandbox, before), *dict.fromkeys(problems)]
            said = "; ".join([*causes, _last_lines(done.stderr or done.stdout)])
            raise InstallFailed(f"{manager.manager} could not install {', '.join(libraries)}: {one_line(said)}")
        if self.ruled(places.language):
            everything = await list_libraries(sandbox, places, manager.everything or manager.installed)
            if refusal := self._rules[places.language.name].refusal(libraries, everything):
                raise InstallFailed(f"installing {', '.join(libraries)}: {refusal}")
        return await list_libraries(sandbox, places, manager.installed)

    async def _through_gateway(
        self,
        sandbox: Sandbox,
        places: Places,
        manager: Libraries,
        libraries: Sequence[str],
        upstream: str,
        problems: list[str],
    ) -> Completed | None:
        """Runs the package manager while the gateway is open; nothing when the time ran out."""
        from .gateway import index_url, serve_index
        from .index_client import Upstream, open_client

        try:
            index = Upstream.parse(upstream)
        except ValueError as error:
            section = f"languages.{places.language.name}.index"
            raise InstallFailed(f"the package index {error}; set {section} in the profile") from error
        # What is on this machine already is near enough, and its files may change under their names.
        downloads = None if index.host in _LOOPBACK else self._downloads
        done: Completed | None = None
        with anyio.move_on_after(self._profile.limits.install_timeout):
            # What is served ends before the listener does, and that before the client.
            async with open_client(upstream) as client, sandbox.listen() as listener, open_tasks() as tasks:
                serve = partial(
                    serve_index,
                    client=client,
                    downloads=downloads,
                    files=re.compile(manager.files_pattern),
                    on_problem=problems.append,
                )
                tasks.start_soon(serve, listener, upstream)
                inside = replace(places, index=index_url(listener), proxied=False)
                done = await sandbox.run([*inside.argv(manager.install), *libraries], inside.env(sandbox.path))
                tasks.cancel_scope.cancel()
        return done


async def _reached(sandbox: Sandbox, before: Usage) -> list[str]:
    """A line for each limit that was reached: package managers say little of why they cannot write, or were killed."""
    # What a package started may keep a pod too busy to answer.
    with anyio.move_on_after(_LOOK):
        used, fullness = (await sandbox.usage()).since(before), await sandbox.fullness(thorough=False)
        hit = limits_hit(used, fullness, sandbox.policy)
        return [f"{line} ({_LIMITS[status]} in the profile)" for status, line in hit.items()]
    return []


def _last_lines(output: bytes) -> str:
    last = output[-4 * _LAST_CHARACTERS :]  # a character has four bytes at most, and output may be megabytes
    lines = [line.strip() for line in last.decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:] or "no reason given"
