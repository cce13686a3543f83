"""Runs every case in the `selftest/` folders of the handlers, with the whole service, on every backend.

It takes long because it starts a Java compiler and a JVM twenty times, and builds a package of R.
"""

import re
import tomllib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, ConfigDict, Field

from llm_sandbox_mcp.base.results import Output, PoolStatistics
from llm_sandbox_mcp.languages.languages import Language
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from tests.engines import need, need_image
from tests.growth import lasting

from .serving import LANGUAGES, missing, service_with_indexes

LIMIT = 120.0
"""Seconds for one run, including its installations."""


class Run(BaseModel):
    """One run of a case and its expected result; a value that is not given is not checked."""

    model_config = ConfigDict(extra="forbid")

    code: str
    timeout: float = 30.0
    libraries: list[str] = []
    variables: dict[str, Any] = {}
    stdin: str = ""
    status: str = "ok"
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdout_has: str | list[str] = []
    stderr_has: str | list[str] = []
    result: str | None = None
    artifacts: list[str] | None = None
    session_state: str | None = None
    output_bytes: int | None = None
    notes: str | list[str] = []


class Case(BaseModel):
    """A sentence about behaviour, and the runs in one session that show it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    run: list[Run] = Field(min_length=1)


class Cases(BaseModel):
    """The content of a file."""

    model_config = ConfigDict(extra="forbid")

    case: list[Case] = Field(min_length=1)


def cases(language: Language) -> list[Case]:
    """The cases of a language; none if it has no file, for which another test fails."""
    file = language.folder / "selftest" / "cases.toml"
    return Cases.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).case if file.is_file() else []


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def service(anyio_backend: str, backend_name: str) -> AsyncIterator[Service]:
    """One service for all cases, with an index for every language that can have one here."""
    await need(backend_name)
    async with service_with_indexes(backend_name) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(service: Service) -> dict[str, str]:
    """The session of each language that keeps no state, which its cases share: its tools are compiled only once."""
    return {}


def _parameters() -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name}: {case.name}")
        for name, language in LANGUAGES.items()
        for case in cases(language)
    ]


@pytest.mark.in_turns
@pytest.mark.anyio
@pytest.mark.parametrize(("language", "case"), _parameters())
async def test_a_language_behaves_as_its_selftest_says(
    service: Service, shared: dict[str, str], backend_name: str, language: str, case: Case
) -> None:
    need_image(backend_name, language)
    handler, libraries = LANGUAGES[language].handler, any(run.libraries for run in case.run)
    if programs := missing(LANGUAGES[language], libraries=libraries):
        pytest.skip(f"{language} needs {', '.join(programs)}: {handler.requires.install}")
    if not handler.stateful and not libraries:
        if language not in shared:
            with lasting():
                shared[language] = open_session(service, language)
                await service.sessions.refresh(shared[language], language)
        for run in case.run:
            with anyio.fail_after(LIMIT):
                await _check(service, shared[language], language, run)
        return
    session = open_session(service)
    try:
        for run in case.run:
            with anyio.fail_after(LIMIT):
                await _check(service, session, language, run)
    finally:
        await service.sessions.close(session)


@pytest.mark.only_in_all(but={"language": ("python", "javascript")})
@pytest.mark.anyio
@pytest.mark.parametrize(
    "language", [name for name, language in LANGUAGES.items() if any(case.run[0].libraries for case in cases(language))]
)
async def test_warm_kernels_find_libraries_that_are_installed_later(backend_name: str, language: str) -> None:
    await need(backend_name)
    need_image(backend_name, language)
    if programs := missing(LANGUAGES[language], libraries=True):
        pytest.skip(f"{language} needs {', '.join(programs)}")
    async with service_with_indexes(backend_name, warm=language) as service:
        for case in (case for case in cases(LANGUAGES[language]) if case.run[0].libraries):
            with anyio.fail_after(LIMIT):
                await service.pool_until(lambda now: _warm(now, language))
            session = open_session(service, language)
            for run in case.run:
                with anyio.fail_after(LIMIT):
                    await _check(service, session, language, run)
            await service.sessions.close(session)
        assert service.pool().hits > 0
        assert service.pool().misses == 0


def _warm(now: PoolStatistics, language: str) -> bool:
    return any(key.language == language and key.warm for key in now.keys)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_a_selftest_for_each_behaviour(language: str) -> None:
    found = cases(LANGUAGES[language])
    names = [case.name for case in found]
    assert len(set(names)) == len(names)
    runs = [run for case in found for run in case.run]
    assert any(run.stdout == "hello\n" for run in runs)
    assert any(run.status == "timeout" and run.session_state == "kept" for run in runs)
    assert any(run.exit_code not in (None, 0, 1, 130) for run in runs)
    assert any(run.output_bytes is not None for run in runs)
    assert any(run.artifacts for run in runs)
    assert any(run.stdout is not None and not run.stdout.isascii() for run in runs)
    assert any(case.name == "standard input is at its end" for case in found)
    assert any(run.stdin for run in runs)
    assert any("line of the code" in case.name and _has_number(case) for case in found)
    kept = "stay for the next run" if LANGUAGES[language].handler.stateful else "nothing but files is kept"
    assert any(kept in case.name and len(case.run) > 1 for case in found)
    assert any(run.libraries for run in runs) == (LANGUAGES[language].handler.libraries is not None)
    assert any("has no network" in str(run.notes) for run in runs)
    assert any("is not installed" in str(run.notes) for run in runs) == any(run.libraries for run in runs)


def _has_number(case: Case) -> bool:
    """Whether an expected error of the case contains a line number."""
    return any(run.status == "error" and re.search(r"\d", str(run.stderr_has)) for run in case.run)


async def _check(service: Service, session: str, language: str, run: Run) -> None:
    done = await execute(
        service,
        run.code,
        language=language,
        session_id=session,
        libraries=run.libraries,
        timeout=run.timeout,
        variables=run.variables,
        stdin=run.stdin,
    )
    assert done.status == run.status, done
    assert run.exit_code is None or done.exit_code == run.exit_code, done
    assert run.stdout is None or done.stdout.text == run.stdout, done
    assert run.stderr is None or done.stderr.text == run.stderr, done
    for stream, parts in ((done.stdout, run.stdout_has), (done.stderr, run.stderr_has)):
        for part in [parts] if isinstance(parts, str) else parts:
            assert part in stream.text, done
    for note in [run.notes] if isinstance(run.notes, str) else run.notes:
        assert note in done.notes, done
    assert run.result is None or done.result == run.result, done
    names = sorted(artifact.name for artifact in done.artifacts)
    assert run.artifacts is None or names == sorted(run.artifacts), done
    assert run.session_state is None or done.session_state == run.session_state, done
    assert run.output_bytes is None or _length(done.stdout) == run.output_bytes, done.notes


def _length(output: Output) -> int:
    """The bytes of a stream, including the omitted part, which a line in the text replaces."""
    if not output.omitted:
        return len(output.text.encode())
    head, _, rest = output.text.partition("\n[... ")
    return len((head + rest.partition(" left out ...]\n")[2]).encode()) + output.omitted
