"""Connects the parts of one server, for as long as a scope lasts."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from .aio.tasks import open_tasks
from .backends import create
from .backends.base import Backend, Sandbox, Surroundings, Zygote
from .files.artifacts import ArtifactStore
from .files.watching import WatchedFolders
from .host.audit import Audit
from .host.folders import HostFolders, host_folders
from .host.server_folder import open_runtime
from .languages.languages import load_languages
from .libraries.installed.ruling import library_rules
from .libraries.installing import Installer
from .libraries.prepared.environments import tool_place
from .libraries.prepared.preparing import Preparer, environment_places
from .network.proxy import make_proxy
from .network.secrets import read_secrets
from .pool.pool import WARM_UP, Pool
from .pool.preloads import Preloads, modules_of, zygote_of
from .profile.machine import check_limits
from .profile.profile import Profile
from .rules.checking import open_checker
from .rules.presets import rules_of
from .runs.interpreter import Interpreter
from .runs.interpreters import Interpreters
from .service import Service
from .service.parts import Parts
from .sessions.live import LiveSessions
from .state.opening import kept_sessions, saved_sessions


def open_backend(profile: Profile, surroundings: Surroundings) -> Backend:
    """The backend that the profile names; enter it as an async context manager."""
    surroundings = replace(
        surroundings,
        libraries={name: section.libraries for name, section in profile.languages.items()},
        open_network=profile.network.mode == "open",
        policy=profile.policy(),
        require_limits=profile.backend.require_limits,
        views=profile.views,
    )
    return create(profile.backend.name, profile.engines, surroundings)


@asynccontextmanager
async def open_service(
    profile: Profile,
    folders: HostFolders | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    make: Callable[[Profile, Surroundings], Backend] = open_backend,
) -> AsyncIterator[Service]:
    """Opens everything a server needs, for as long as the scope lasts; the engine starts in the background.

    The first use of the engine waits for it. `environ` is the environment of package managers on the host, such as
    proxies and certificates; none of it reaches a sandbox. `make` makes the backend; tests pass one that no profile can
    name. Raises `ProfileError` for a handler folder with a mistake, a folder that cannot be created, or a limit that
    this machine cannot give.
    """
    folders = folders or host_folders(profile.server.cache, profile.server.runtime)
    languages = load_languages(profile.handlers.folders)
    profile.check_languages(languages.prepared, languages.preloading)
    check_limits(profile)
    rules = rules_of(profile.rules)
    allowed = library_rules(profile, languages)
    saved = saved_sessions(profile, folders.sessions)
    kept = kept_sessions(profile, folders.sessions)
    with open_runtime(folders.runtime) as runtime, WatchedFolders() as watched:
        surroundings = Surroundings(
            runtime=runtime.path,
            handlers={name: language.folder for name, language in languages.items()},
            environments=environment_places(profile, languages, folders.cache),
            tools=tool_place(folders.cache),
            environ=environ or {},
        )
        secrets = read_secrets(profile.network.secrets, environ or {})
        async with (
            Audit(profile.audit.file, profile.audit.size) as audit,
            make(profile, surroundings) as backend,
            Preparer(profile, languages, folders.cache, environ or {}, backend) as preparer,
            open_checker(rules, profile.rules, languages) as checker,
            open_tasks() as owners,
            # The innermost group: cancelling a group that contains others would hide their errors.
            open_tasks() as timers,
        ):

            async def warm_up(interpreters: Interpreters, name: str) -> Interpreter:
                interpreter = await interpreters.start(await preparer.places(languages[name]))
                # Twice: R compiles the code of its runner at the second use, which would cost the first run 90 ms.
                for _ in range(1 if interpreter.missed is not None else 2):
                    await interpreter.check(WARM_UP)
                return interpreter

            proxy = await make_proxy(audit, secrets)
            installer = Installer(profile, folders.cache, allowed, proxy.held, environ)
            for name, libraries in profile.pool.libraries.items():
                installer.check(languages[name], libraries)

            @asynccontextmanager
            async def attach(sandbox: Sandbox, name: str) -> AsyncIterator[None]:
                async with proxy.attached(sandbox):
                    if libraries := profile.pool.libraries.get(name):
                        await installer.install(sandbox, await preparer.places(languages[name]), libraries)
                    yield

            async def find(name: str, modules: Sequence[str], missed: frozenset[str]) -> Zygote | None:
                if not modules or profile.pool.libraries.get(name):
                    return None
                return zygote_of(await preparer.places(languages[name]), modules, missed)

            modules = {name: modules_of(profile, languages[name]) for name in profile.pool.languages}
            pool = Pool(backend, profile.pool, warm_up, attach, owners, Preloads(modules, find))
            timers.start_soon(pool.serve)
            sessions = LiveSessions(pool, profile.sessions, timers)
            store = ArtifactStore(runtime.path / "artifacts", profile.artifacts)
            try:
                service = Service(
                    Parts(
                        profile=profile,
                        languages=languages,
                        backend=backend,
                        pool=pool,
                        live=sessions,
                        store=store,
                        saved=saved,
                        kept=kept,
                        preparer=preparer,
                        installer=installer,
                        checker=checker,
                        audit=audit,
                        folders=watched,
                        tasks=timers,
                    )
                )
                try:
                    yield service
                finally:
                    await service.keeping.end()
            finally:
                sessions.close_all()
                pool.close()
                timers.cancel_scope.cancel()
