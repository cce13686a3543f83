"""A whole service with room for every language, whose libraries come from indexes on loopback."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llm_sandbox_mcp.languages import Language, load_languages
from llm_sandbox_mcp.profile import LanguageSection
from llm_sandbox_mcp.service import Service, open_service
from tests.engines import MIB, host_folder, small_profile

from .indexes import serve_indexes

LANGUAGES = load_languages()
_LIMITS = {"memory": 1024 * MIB, "cpus": 2.0, "pids": 256, "disk": 256 * MIB, "output": 8 * MIB}


def missing(language: Language, *, libraries: bool) -> list[str]:
    """The programs that a language needs and that are not here."""
    handler = language.handler
    programs = [*handler.requires.commands, *(handler.libraries.requires if libraries and handler.libraries else ())]
    return [program for program in programs if shutil.which(program) is None]


@asynccontextmanager
async def service_with_indexes(backend: str) -> AsyncIterator[Service]:
    """A service on one backend, with an index for every language that has one here."""
    ready = {name: not missing(language, libraries=True) for name, language in LANGUAGES.items()}
    with host_folder() as folder, serve_indexes(ready) as addresses:
        sections = {name: LanguageSection(index=address) for name, address in addresses.items()}
        profile = small_profile(backend, folder, limits=_LIMITS).model_copy(update={"languages": sections})
        async with open_service(profile) as opened:
            yield opened
