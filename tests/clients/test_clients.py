"""Plays the same scenario with each outside client on each way to the server, and checks what the client shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from ..mcp.serving import Server
from .conftest import Run
from .outside import CLIENTS, NPM, PYTHON, WAYS, Habits

pytestmark = pytest.mark.only_in_all(but={"outside": "mcp_1", "way": "stdio"})

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""One black pixel."""

CALLS = {
    "assigns": {"code": "x = 41"},
    "uses it": {"code": "x + 1"},
    "fails": {"code": "1 / 0"},
    "draws": {"code": f"import base64; n = open('dot.png', 'wb').write(base64.b64decode('{PNG}'))"},
    "has an unknown language": {"code": "x", "language": "cobol"},
}

PRINTED = "working\n"
ENDLESS = f"print({PRINTED.strip()!r}, flush=True)\nwhile True: pass"

PATIENCE = {"mcp_1": 1.0}
"""Seconds after which a client gives up a call. The others wait longer: for some the limit is that of all calls, and some
only close their connection, which means giving up after 4.5 seconds."""
GOES_ON, ENDS = 0.5, 50.0
"""Seconds to look at a run that must still run then, and to wait for one that must end."""


@pytest.fixture(scope="module", params=CLIENTS)
def outside(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def habits(outside: str) -> Habits:
    return CLIENTS[outside]


@pytest.fixture(scope="module")
def seen(outside: str, way: str, run: Run, command: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the client has shown; some of these tests can fail while others pass."""
    server: Server | None = None if way == "stdio" else request.getfixturevalue("server")
    target = {
        "way": way,
        "command": str(command),
        "url": server.url if server else "",
        "calls": CALLS,
        "endless": ENDLESS,
        "printed": PRINTED,
        "patience": PATIENCE.get(outside, 6.0),
        "settles": {"cancelled": ENDS if way in CLIENTS[outside].cancels else GOES_ON, "given_up": GOES_ON},
    }
    return run(outside, target)


def test_every_client_has_a_program() -> None:
    programs = {path.stem for path in (Path(__file__).parent / "programs").iterdir() if path.is_file()}
    assert programs - {"__init__", "scenario", "readme", "timing"} == {*CLIENTS} == {*PYTHON, *NPM}


def test_a_client_connects_and_lists_the_tools(seen: dict[str, Any]) -> None:
    assert seen["tools"] == ["execute_code", "install_libraries", "copy_file", "get_artifacts", "manage_session"]


def test_variables_are_kept_from_call_to_call(seen: dict[str, Any]) -> None:
    assert re.search(r"\b42\b", seen["shown"]["uses it"]["text"])


def test_an_error_of_the_code_is_a_result(seen: dict[str, Any]) -> None:
    shown = seen["shown"]["fails"]
    assert "ZeroDivisionError: division by zero" in shown["text"]
    assert (shown["failed"], shown["raised"]) == (False, "")


def test_an_error_of_the_call_says_what_is_wrong(seen: dict[str, Any], habits: Habits) -> None:
    shown = seen["shown"]["has an unknown language"]
    assert "unknown language 'cobol'; available: bash, cpp" in shown["text"]
    results = {"a result that is marked": (True, ""), "a result that is not marked": (False, "")}
    assert (shown["failed"], shown["raised"]) == results.get(habits.refused, (True, habits.refused))


def test_a_picture_comes_back(seen: dict[str, Any], habits: Habits) -> None:
    shown = seen["shown"]["draws"]
    assert shown["images"] == ([PNG] if habits.pictures else [])
    assert (PNG in shown["text"]) == (not habits.pictures)
    assert "dot.png" in shown["text"]


def test_progress_arrives_at_clients_that_take_it(seen: dict[str, Any], habits: Habits) -> None:
    assert seen["reports"] == habits.progress
    assert (PRINTED in "".join(seen["messages"])) == habits.progress


def test_a_run_whose_call_is_cancelled_ends_if_the_server_is_told_so(
    seen: dict[str, Any], habits: Habits, way: str
) -> None:
    cancelled = seen["cancelled"]
    assert cancelled["raised"]
    assert cancelled["run"] == ("cancelled" if way in habits.cancels else "running")


def test_a_run_whose_client_gives_up_is_found_and_goes_on(seen: dict[str, Any], habits: Habits) -> None:
    given_up = seen["given_up"]
    assert given_up["raised"]
    assert any(part in given_up["text"].lower() for part in habits.gave_up)
    assert given_up["run"] == "running"


def test_the_server_still_answers_and_has_lost_nothing(seen: dict[str, Any]) -> None:
    assert re.search(r"\b41\b", seen["after"]["text"])
