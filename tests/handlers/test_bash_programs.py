"""Programs of other languages in Bash: they are the session's own, with its libraries; and pip, which is a function."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uv

from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session
from tests.local_index import local_index, wheel

from .driver import HANDLERS, start
from .serving import service_with_indexes

STEP = "cannot install libraries itself; call install() with"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def service(anyio_backend: str) -> AsyncIterator[Service]:
    async with service_with_indexes("embedded") as opened:
        yield opened


@pytest.fixture
async def session(service: Service) -> AsyncIterator[str]:
    opened = open_session(service, "bash")
    yield opened
    await service.sessions.close(opened)


async def bash(service: Service, session: str, code: str) -> Execution:
    return await execute(service, code, language="bash", session_id=session)


@pytest.mark.anyio
async def test_python_is_that_of_the_session(service: Service, session: str) -> None:
    ours = await execute(service, "import sys; print(sys.executable)", session_id=session)
    assert (await bash(service, session, "python -c 'import sys; print(sys.executable)'")).stdout == ours.stdout
    assert (await bash(service, session, "python3 -c 'import sys; print(sys.executable)'")).stdout == ours.stdout


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "library", "code"),
    [
        ("python", "tinyanswer", "python -c 'import tinyanswer; print(tinyanswer.ANSWER)'"),
        ("javascript", "tiny-answer", "node -p 'require(\"tiny-answer\")'"),
        ("ruby", "tiny-answer:1.0.0", "ruby -e 'require \"tiny_answer\"; puts TinyAnswer::ANSWER'"),
    ],
)
async def test_programs_find_what_the_session_installed(
    service: Service, session: str, language: str, library: str, code: str
) -> None:
    before = await bash(service, session, code)
    assert before.status == "error" and any("is not installed" in note for note in before.notes), before
    await install(service, [library], language=language, session_id=session)
    program = library.partition(":")[0]
    after = await bash(service, session, f"{code}; {program}")
    assert (after.status, after.stdout.text) == ("ok", "42\n42\n"), after
    programs = [program, *([f"npx {program}", f"npx --no-install {program}"] if language == "javascript" else ())]
    for command in programs:
        for other, code in (
            ("bash", command),
            ("python", f"import os; _ = os.system('{command}')"),
            ("javascript", f"process.stdout.write(require('child_process').execSync('{command}'))"),
        ):
            done = await execute(service, code, language=other, session_id=session)
            assert (done.status, done.stdout.text) == ("ok", "42\n"), (other, command, done)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "note"),
    [
        (
            "npx tinything",
            "code asked for 'tinything', and cannot install libraries itself; call install() with tinything",
        ),
        (
            "npm install tinything",
            "code asked for 'tinything', and cannot install libraries itself; call install() with",
        ),
        (
            "gem install tinything",
            "code asked for 'tinything', and cannot install libraries itself; call install() with",
        ),
        (
            "pip install tinything",
            "code asked for 'tinything', and cannot install libraries itself; call install() with",
        ),
    ],
)
@pytest.mark.parametrize("language", ["python", "javascript", "ruby"])
async def test_package_managers_that_code_of_any_language_calls_say_what_to_do(
    service: Service, language: str, command: str, note: str
) -> None:
    code = {
        "python": f"import os; _ = os.system('{command}')",
        "javascript": f"require('child_process').spawnSync('{command}', {{ shell: true, stdio: 'inherit' }})",
        "ruby": f"system('{command}')",
    }[language]
    done = await execute(service, code.replace("'pip ", "'python3 -m pip "), language=language, keep_session=False)
    assert [one[: len(note)] for one in done.notes] == [note], done


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "note"),
    [
        ("pip install pandas", f"code asked for 'pandas', and {STEP} pandas"),
        ("pip3 install -q --upgrade pandas==2.2 numpy", f"code asked for 'pandas', and {STEP} pandas"),
        ("python -m pip install pandas", f"code asked for 'pandas', and {STEP} pandas"),
        ("pip install -r requirements.txt", f"code {STEP} their names"),
        ("pip install https://example.com/a.whl", f"code {STEP} their names"),
    ],
)
async def test_pip_without_a_network_names_what_to_call(service: Service, session: str, code: str, note: str) -> None:
    done = await bash(service, session, code)
    assert (done.status, done.notes) == ("error", (f"{note}, language python",)), done


@pytest.mark.anyio
async def test_pip_says_what_it_is_and_what_there_is(service: Service, session: str) -> None:
    done = await bash(
        service, session, "pip --version; pip -V; python -m pip --version; pip list; pip freeze >/dev/null"
    )
    assert done.status == "ok", done
    assert re.fullmatch(r"(pip \(uv [\d.]+\) from \S+ \(python 3\.\d+\)\n){3}.*", done.stdout.text, re.DOTALL), done


@pytest.mark.anyio
async def test_a_script_in_python_that_shows_a_figure_leaves_it(service: Service, session: str) -> None:
    code = "import sandbox_shown; sandbox_shown.write(b'x', 'png')"
    done = await bash(service, session, f'python -c "{code}"')
    assert [artifact.name for artifact in done.artifacts] == ["figure-1.png"], done


def test_pip_with_a_network_installs_for_the_session(tmp_path: Path) -> None:
    with local_index() as index:
        index.add_project("tinyanswer", wheel("tinyanswer"), index)
        env = {
            "SANDBOX_NETWORK": "open",
            "SANDBOX_UV": uv.find_uv_bin(),
            "PYTHONPATH": str(HANDLERS / "python/importlib_bootstrap/lib"),
            "SANDBOX_PYTHON_LIBRARIES": str(tmp_path / "python"),
            "UV_DEFAULT_INDEX": f"{index.url}/simple",
            "UV_NO_CONFIG": "1",
        }
        with start("bash", tmp_path, env) as runner:
            done = runner.run("pip install tinyanswer")
    assert done.status == "ok", done.err
    assert (tmp_path / "python/tinyanswer.py").is_file()
