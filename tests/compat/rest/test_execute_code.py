"""A client that was written for sandbox_for_llm_code works unchanged; its answers contain further details."""

import json
import socket
from typing import Any

import httpx2
import pytest

from ...broken_text import CUT, ENCODED, NOTE, PRINTED
from ...mcp.serving import Server
from .calling import HTTP, execute, failure, new, result


@pytest.mark.parametrize(("path", "other"), [("/", "message"), ("/health", "service")])
def test_every_caller_can_check_that_the_server_is_healthy(server: Server, path: str, other: str) -> None:
    answer = HTTP.get(server.url + path)
    assert (answer.status_code, answer.json()["status"]) == (200, "healthy")
    assert {*answer.json()} == {"status", other}


def test_code_uses_the_variables_of_the_request(server: Server) -> None:
    payload = {"code": "out=x+y", "local_dict": {"x": 10, "y": 2}}
    response = HTTP.post(f"{server.url}/execute_code/", json=payload, timeout=60)
    answer = response.json()
    assert response.status_code == 200
    assert (answer["result"], answer["success"]) == ({"x": 10, "y": 2, "out": 12}, True)


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_is_read_as_json_whatever_its_content_type(server: Server, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}  # that of `curl -d` without -H is the second
    body = b'{"code": "value = 1", "session_id": "kinds"}'
    answer = HTTP.post(f"{server.url}/execute_code/", content=body, headers=headers, timeout=60)
    assert answer.request.headers.get("content-type") == kind
    assert (answer.status_code, answer.json()["result"]) == (200, {"value": 1})


@pytest.mark.parametrize("half", ENCODED.values(), ids=ENCODED)
def test_code_with_half_an_emoji_runs(server: Server, half: bytes) -> None:
    body = json.dumps({"code": CUT.format("<half>"), "session_id": "half"}).encode().replace(b"<half>", half)
    answer = httpx2.post(f"{server.url}/execute_code/", content=body, timeout=60).json()
    assert (answer["stdout"], answer["notes"][-1]) == (PRINTED, NOTE)


def test_an_error_is_returned_as_data(server: Server) -> None:
    payload = {"code": "# a comment\nout=b_is_nowhere", "local_dict": {"x": 10, "y": 2}}
    response = HTTP.post(f"{server.url}/execute_code/", json=payload, timeout=60)
    answer = response.json()
    assert response.status_code == 400
    assert answer["success"] is False
    assert (answer["error"], answer["error_type"]) == ("name 'b_is_nowhere' is not defined", "NameError")
    assert "line 2, in <module>" in answer["traceback"]
    assert answer["traceback"].endswith("NameError: name 'b_is_nowhere' is not defined\n")


def test_functions_and_imports_are_not_values(server: Server) -> None:
    code = (
        "from typing import Any, List\n\n"
        "def add(a: float, b: float) -> Any:\n    import random\n    return a + b + random.uniform(-0.5, 0.5)\n\n"
        "c = add(a, b)\n"
    )
    answer = execute(server, code, local_dict={"a": 10, "b": 2}).json()
    assert set(answer["result"]) == {"a", "b", "c"}
    assert 11.5 <= answer["result"]["c"] <= 12.5


@pytest.mark.parametrize("body", [{}, {"code": ""}, {"code": " \n"}, {"local_dict": {"x": 1}}], ids=str)
def test_without_code_there_is_an_error(server: Server, body: dict[str, Any]) -> None:
    assert "code" in failure(HTTP.post(f"{server.url}/execute_code/", json=body), 400)


def test_names_are_kept_for_the_next_call_and_the_answer_has_those_of_this_call(server: Server) -> None:
    assert result(server, "import math\ndef area(r):\n    return math.pi * r * r\nx = True", "stay") == {"x": True}
    assert result(server, "y = round(area(2))", "stay") == {"y": 13}
    # Bound to the same value as before, which is still a value of this call.
    assert result(server, "x = True", "stay") == {"x": True}


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("a, (b, *c) = 1, (2, 3)", {"a": 1, "b": 2, "c": [3]}),
        ("for i in range(3):\n    pass", {"i": 2}),
        ("import json as j\nclass C: pass\nk = j.dumps([1])", {"k": "[1]"}),
        ("global g\ng = 1", {}),
        ("def f():\n    global h\n    h = 1\nf()", {}),
        ("v = 1\ndel v", {}),
        ("exec('dynamic = 5')", {"dynamic": 5}),
        ("import asyncio\nawaited = await asyncio.sleep(0, 7)", {"awaited": 7}),
        ("import sys\nk = 1\nsys.exit(0)", {"k": 1}),
        ("t = (1, None, 'é\\0', {2: 0.5}, 10**30)", {"t": [1, None, "é\0", {"2": 0.5}, 10**30]}),
    ],
)
def test_the_answer_has_what_the_code_bound_at_its_top_level(server: Server, code: str, values: dict[str, Any]) -> None:
    assert result(server, code, "bound") == values


@pytest.mark.parametrize(
    "value",
    [
        "object()",
        "{1, 2}",
        "float('nan')",
        "'\\ud800'",
        # As text it would need three times the available memory.
        "['x' * 1000] * 6_000_000",
        "'x' * 10**7",
        "{(1, 2): 3}",
        "10**5000",
        "[[[]]] and (lambda: [l := [], l.append(l), l])()[2]",
        "__import__('functools').reduce(lambda inner, _: [inner], range(300), 1)",
        "__import__('functools').reduce(lambda inner, _: {'inner': inner}, range(900), 1)",
        "type('D', (dict,), {'items': lambda self: 1 / 0})(a=1)",
    ],
)
def test_values_that_json_cannot_express_are_left_out_and_named(server: Server, value: str) -> None:
    answer = execute(server, f"odd = {value}\ngood = 1", "odd").json()
    assert answer["result"] == {"good": 1}
    *_, note = answer["notes"]
    assert note.startswith("not in result, because JSON cannot represent them or they are too large: odd; ")


def test_all_values_together_have_at_most_512_kib(server: Server) -> None:
    assert len(result(server, "a = 'x' * 500_000", "room")["a"]) == 500_000
    answer = execute(server, "a = 'x' * 300_000\nb = 'x' * 300_000\nc = 1", "room").json()
    assert {*answer["result"]} == {"a", "c"}


@pytest.mark.parametrize(
    ("code", "error_type", "error", "last"),
    [
        ("x =", "SyntaxError", "invalid syntax (<cell", "SyntaxError: invalid syntax"),
        (
            "import json\njson.loads('x')",
            "JSONDecodeError",
            "Expecting value: line 1",
            "json.decoder.JSONDecodeError: E",
        ),
        ("raise ValueError('two\\nlines')", "ValueError", "two\nlines", "lines"),
        ("raise SystemExit('gone')", "SystemExit", "gone", "SystemExit: gone"),
        (
            "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E",
            "E",
            "<exception str()",
            "E: <exception str()",
        ),
        ("import sys\nsys.excepthook = print\n1 / 0", "ZeroDivisionError", "division by zero", "ZeroDivisionError: d"),
    ],
)
def test_every_error_has_type_text_and_traceback(
    server: Server, code: str, error_type: str, error: str, last: str
) -> None:
    answer = execute(server, code, error_type).json()
    assert (answer["status"], answer["error_type"]) == ("error", error_type)
    assert answer["error"].startswith(error)
    assert answer["traceback"].splitlines()[-1].startswith(last)
    assert "sandbox_" not in answer["traceback"]


def test_the_answer_includes_output_and_artifacts(server: Server) -> None:
    answer = execute(server, "print('out')\nopen('t.csv', 'w').write('a')", "printed").json()
    assert (answer["stdout"], answer["stderr"], answer["status"]) == ("out\n", "", "ok")
    assert answer["artifacts"] == [{"name": "t.csv", "mime_type": "text/csv", "size_bytes": 1}]


def test_sessions_with_different_names_are_separate(server: Server) -> None:
    assert result(server, "mine = 1", "one") == {"mine": 1}
    assert execute(server, "mine", "other").json()["error_type"] == "NameError"
    # The field takes precedence over the header.
    body = {"code": "here = mine", "session_id": "one"}
    answer = HTTP.post(f"{server.url}/execute_code/", json=body, headers={"X-Session-Id": "other"}).json()
    assert (answer["session_id"], answer["result"]) == ("one", {"here": 1})
    answer = HTTP.post(f"{server.url}/execute_code/", json={"code": "y = mine"}, headers={"X-Session-Id": "one"})
    assert answer.json()["result"] == {"y": 1}
    shared = execute(server, "z = 1").json()
    assert shared["session_id"] == "default"
    assert execute(server, "z", "default").status_code == 200


def test_code_that_runs_for_too_long_is_stopped_and_its_session_is_kept(server: Server) -> None:
    assert result(server, "x = 1", "long") == {"x": 1}
    answer = execute(server, "while True: pass", "long", timeout_seconds=0.2)
    assert answer.status_code == 400
    assert (answer.json()["status"], answer.json()["error_type"]) == ("timeout", "timeout")
    assert answer.json()["error"].startswith("stopped after 200ms; ")
    assert result(server, "y = x", "long") == {"y": 1}


def test_an_interpreter_that_ends_is_reported_and_the_next_call_has_a_fresh_one(server: Server) -> None:
    answer = execute(server, "import os\nos._exit(3)", "ends")
    assert (answer.status_code, answer.json()["status"]) == (400, "error")
    assert answer.json()["error"].startswith("the interpreter ended with exit code 3; variables are lost")
    assert result(server, "x = 1", "ends") == {"x": 1}


def test_a_session_is_said_to_be_new_until_a_result_says_so(server: Server) -> None:
    refused = HTTP.post(
        f"{server.url}/execute_code/", json={"code": "1", "session_id": "fresh", "timeout_seconds": 1e9}
    )
    assert refused.status_code == 403
    assert execute(server, "x = y", "fresh").json()["notes"] == [new("fresh")]
    assert execute(server, "x = 1", "fresh").json()["notes"] == []


def test_a_session_that_was_closed_for_others_is_opened_again_with_a_note(server: Server) -> None:
    assert result(server, "x = 1", "old") == {"x": 1}
    for number in range(32):  # sessions.max
        HTTP.post(f"{server.url}/files/empty", headers={"X-Session-Id": f"new-{number}"}).raise_for_status()
    answer = execute(server, "y = 1", "old").json()
    assert answer["result"] == {"y": 1}
    assert answer["notes"] == [
        "started fresh: session old was closed, or unused for too long; variables and files are lost"
    ]
    assert execute(server, "y = 1", "old").json()["notes"] == []


def test_when_a_caller_disconnects_its_code_ends(server: Server) -> None:
    assert result(server, "x = 1", "goes") == {"x": 1}
    host, port = server.url.removeprefix("http://").split(":")
    body = b'{"code": "print(1)\\nwhile True: pass", "session_id": "goes", "timeout_seconds": 60}'
    head = (
        f"POST /execute_code/ HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(head.encode() + b"\r\n\r\n" + body)
        while not _running(server):
            pass
    # This call waits for the session, which would be busy for a minute if the code had not been ended.
    assert execute(server, "y = x", "goes", timeout=20).json()["result"] == {"y": 1}


def _running(server: Server) -> bool:
    """Whether the session is busy: reading a file then has to wait."""
    try:
        HTTP.get(f"{server.url}/files/none", headers={"X-Session-Id": "goes"}, timeout=0.5)
    except httpx2.ReadTimeout:
        return True
    return False


def test_code_that_a_rule_refuses_does_not_run(server: Server) -> None:
    reason = failure(execute(server, "import threading\nx = 1", "ruled"), 403)
    assert "no-threads" in reason
    assert execute(server, "x", "ruled").json()["error_type"] == "NameError"
