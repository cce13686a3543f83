"""What callers ask for is checked once, before anything is opened; and who asks is written down with it."""

from typing import Any

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument, PolicyDenied, RequestError, UnknownSession
from llm_sandbox_mcp.base.principal import TOKEN, USER, Principal
from llm_sandbox_mcp.sandboxes import Session
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.testing.asking import open_session, start

from .backend import MemoryBackend

pytestmark = pytest.mark.anyio

MISTAKES: dict[str, dict[str, Any]] = {
    "no code": {"code": " \n"},
    "too much code": {"code": "x" * (2 << 20)},
    "unknown language": {"language": "cobol"},
    "a library without a package manager": {"libraries": ["six"]},
    "neither code nor libraries": {"code": None},
    "libraries that nobody installs": {"code": None, "libraries": ["six"]},
    "too much time": {"timeout": 1e6},
    "too much output": {"limits": {"output": 1 << 40}},
    "too much memory": {"limits": {"memory": 1 << 50}},
    "no such limit": {"limits": {"luck": 1}},
    "no plain name": {"variables": {"a-b": 1}},
    "no value of JSON": {"variables": {"a": object()}},
    "NUL on standard input": {"stdin": "a\0b"},
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_nothing_is_opened_for_an_ask_with_a_mistake(
    service: Service, engine: MemoryBackend, mistake: str
) -> None:
    asked = {"caller": TOKEN, "code": "print one", "language": "script", **MISTAKES[mistake]}
    for attempt in (service.run, service.install, service.door.check):
        with pytest.raises(RequestError):
            await attempt(Ask(**asked))
    assert service.sessions.list() == ()
    assert not engine.live


async def test_a_limit_of_a_session_is_checked_before_its_work_starts(service: Service) -> None:
    short = open_session(service, "script", {"timeout": 5})
    with pytest.raises(PolicyDenied, match="at most 5, the session's limit; got 10"):
        await start(service, "print one", language="script", session_id=short, timeout=10)
    with pytest.raises(UnknownSession):
        await start(service, "print one", language="script", session_id="x")
    assert service.door.of_session(short) == ()
    [session] = service.sessions.list()
    assert session.runs == 0


async def test_one_check_serves_for_several_sessions(service: Service) -> None:
    checked = await service.door.check(Ask(caller=TOKEN, code="print one", language="script"))
    sessions = [open_session(service, "script") for _ in range(2)]
    for session_id in sessions:
        work = await service.door.attend(checked.within(session_id))
        assert (work.session_id, work.execution.stdout.text) == (session_id, "one\n")


async def test_who_asks_is_known_to_the_session_and_to_the_work(service: Service) -> None:
    other = Principal("https://login.example", "somebody")
    work = service.door.start(await service.door.check(Ask(caller=TOKEN, code="print one", language="script")))
    await work.wait()
    guest = Ask(caller=other, code="print two", language="script", session_id=work.session_id)
    again = service.door.start(await service.door.check(guest))
    await again.wait()
    assert (work.ask.caller, again.ask.caller, work.session.owner) == (TOKEN, other, TOKEN)
    assert [info.owner for info in service.sessions.list()] == [TOKEN]
    assert USER.issuer == "machine"


async def test_code_in_a_fence_and_libraries_by_the_names_of_modules_are_what_they_mean(service: Service) -> None:
    asked = Ask(caller=TOKEN, code="```python\n1 / 0\n```", libraries=["PIL==10.0", "json"])
    checked = await service.door.check(asked)
    assert checked.request is not None and checked.request.code == "1 / 0\n"
    assert checked.ask.libraries == ("pillow==10.0",)
    assert [note.code for note in checked.notes] == ["library_renamed", "library_included"]
    alone = await service.door.check(Ask(caller=TOKEN, libraries=["json"]))
    assert (alone.ask.libraries, [note.code for note in alone.notes]) == ((), ["library_included"])


TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "one name": ({"libraries": "six"}, r"libraries must be a list of strings, such as \[\"numpy\"\]; got \"'six'\""),
    "numbers": ({"libraries": (1,)}, "libraries must be a list of strings"),
    "bytes": ({"code": b"print one"}, "code must be text"),
    "bytes of input": ({"stdin": b"x"}, "stdin must be text"),
    "a list": ({"variables": ["x"]}, "variables must be a mapping of names to values"),
    "a typo in a limit": ({"limits": {"memry": 1}, "session_id": "x"}, "unknown limit 'memry'; available: memory"),
}


@pytest.mark.parametrize("wrong", TYPES)
async def test_a_value_of_another_type_is_named(service: Service, wrong: str) -> None:
    given, said = TYPES[wrong]
    asked = {"caller": TOKEN, "code": "print one", "language": "script", **given}
    with pytest.raises(InvalidArgument, match=said):
        await service.door.check(Ask(**asked))


async def test_what_is_no_option_is_refused_by_its_name(service: Service) -> None:
    session = Session(service, "script", None)
    for name in ("keep_session", "session_id", "caller", "origin", "code", "timout"):
        wrong: dict[str, Any] = {name: "x"}
        with pytest.raises(
            TypeError, match=f"unexpected keyword argument '{name}'|multiple values for argument 'code'"
        ):
            await session.run("print one", **wrong)
        with pytest.raises(
            TypeError, match=f"unexpected keyword argument '{name}'|multiple values for argument 'code'"
        ):
            session.stream("print one", **wrong)
    with pytest.raises(
        InvalidArgument, match=r"this session is not open; use it inside `async with \.\.\. as session`"
    ):
        await session.run("print one")
    async with session:
        with pytest.raises(InvalidArgument, match="code is missing; give the source to run"):
            await session.run(None)  # type: ignore[arg-type]
