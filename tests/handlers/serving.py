"""Complete services with enough resources for every language."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llm_sandbox_mcp.languages.languages import Language, load_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, small_profile
from tests.growth import kept

from .indexes import serve_indexes

LANGUAGES = load_languages()
_LIMITS = {"memory": 1024 * MIB, "cpus": 2.0, "pids": 256, "disk": 256 * MIB, "output": 8 * MIB}


def missing(language: Language, *, libraries: bool) -> list[str]:
    """The programs that a language needs and that are not installed."""
    handler = language.handler
    programs = [*handler.requires.commands, *(handler.libraries.requires if libraries and handler.libraries else ())]
    # Programs with a placeholder are included in the server.
    return [program for program in programs if "{" not in program and shutil.which(program) is None]


@asynccontextmanager
async def service_with_default_libraries(backend: str) -> AsyncIterator[Service]:
    """A service with Python's default libraries: from the cache on this machine, or from the image."""
    with host_folder() as folder:
        profile = load_profile()
        if backend != "embedded":
            artifacts = {"file_size": 16 * MIB, "store": 64 * MIB}  # a widget of plotly takes 4 MiB
            profile = small_profile(backend, folder, limits=_LIMITS, artifacts=artifacts, handlers={"folders": ()})
        async with open_service(profile) as opened:
            yield opened


@asynccontextmanager
async def service_with_indexes(backend: str, *, warm: str = "") -> AsyncIterator[Service]:
    """A service on one backend, with an index on loopback for each language that can have one here.

    Or with one for a single language, which is also the one that its pool keeps warm.
    """
    ready = {name: not missing(LANGUAGES[name], libraries=True) for name in ([warm] if warm else LANGUAGES)}
    with host_folder() as folder, serve_indexes(ready) as addresses:
        sections = {name: LanguageSection(index=address) for name, address in addresses.items()}
        profile = small_profile(backend, folder, limits=_LIMITS).model_copy(update={"languages": sections})
        if warm:
            pool = profile.pool.model_copy(update={"min": 1, "languages": (warm,)})
            profile = profile.model_copy(update={"pool": pool})
        async with open_service(profile) as opened:
            # Everything that it keeps now exists, so that the last case leaves no more than the first case found.
            if warm:
                await opened.warm()
            else:
                session = open_session(opened, "python")
                await opened.sessions.refresh(session)
                await opened.sessions.close(session)
            await opened.pool_until(lambda now: not now.closing and not now.leased)
            with kept(backend):
                yield opened
