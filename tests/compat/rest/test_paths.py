"""Files, libraries, limits and logs of a session; access control; and invalid requests."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from ...mcp.results import answer
from ...mcp.serving import Server, stop
from .calling import HTTP, execute, failure, new, result
from .conftest import BEARER, TOKEN

PLACES = [
    ("POST", "/execute_code/"),
    ("POST", "/execute_code"),
    ("POST", "/libraries"),
    ("POST", "/files/x"),
    ("GET", "/files/x"),
    ("GET", "/artifacts"),
    ("GET", "/artifacts/x"),
    ("GET", "/limits"),
    ("GET", "/logs"),
    ("GET", "/openapi.json"),
]


def at(session: str) -> dict[str, str]:
    return {"X-Session-Id": session}


def test_a_file_is_uploaded_read_by_code_and_downloaded(server: Server) -> None:
    sent = HTTP.post(f"{server.url}/files/data/in.csv", content=b"a,b\n1,2\n", headers=at("files"))
    assert sent.status_code == 201
    assert sent.json() == {"session_id": "files", "path": "data/in.csv", "size_bytes": 8, "notes": [new("files")]}
    code = "text = open('data/in.csv').read()\nopen('out.html', 'wb').write(b'\\x00' + text.upper().encode())"
    assert result(server, code, "files")["text"] == "a,b\n1,2\n"
    for path in ("/files/out.html", "/artifacts/out.html"):
        got = HTTP.get(server.url + path, headers=at("files"))
        assert (got.status_code, got.content) == (200, b"\0A,B\n1,2\n")
        # A browser that follows a link to the file does not show it as a page of this server.
        assert got.headers["content-type"].startswith("text/html")
        assert got.headers["content-disposition"] == "attachment"
        assert got.headers["content-security-policy"] == "sandbox"
        assert got.headers["x-content-type-options"] == "nosniff"
    listed = HTTP.get(f"{server.url}/artifacts", headers=at("files")).json()
    assert [found["name"] for found in listed["artifacts"]] == ["out.html"]


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%2F..%2F..%2Fb", "%00", ".."]
)
@pytest.mark.parametrize("place", ["/files/", "/artifacts/"])
def test_no_path_leads_outside_of_the_session(server: Server, place: str, path: str) -> None:
    # The path is sent unchanged: an HTTP library would normalize it first.
    target = f"{place}{path}".encode()
    with httpx2.Client() as client:
        request = client.build_request("GET", server.url, headers=at("out"), extensions={"target": target})
        assert failure(client.send(request), 404)
        request = client.build_request(
            "POST", server.url, headers=at("out"), extensions={"target": b"/files/" + path.encode()}
        )
        assert failure(client.send(request), 400)


@pytest.mark.parametrize("path", ["/files/none", "/artifacts/none", "/nothing", "/files/", "/docs"])
def test_a_missing_file_or_path_is_not_found(server: Server, path: str) -> None:
    execute(server, "x = 1", "there")
    assert failure(HTTP.get(server.url + path, headers=at("there")), 404)
    assert failure(HTTP.get(server.url + path, headers=at("never-used")), 404)


def test_reading_does_not_open_a_session_that_was_never_used(server: Server) -> None:
    for path, key in (("/artifacts", "artifacts"), ("/logs", "entries")):
        assert HTTP.get(server.url + path, headers=at("unused")).json()[key] == []
    assert "has not been used since the server started" in failure(
        HTTP.get(f"{server.url}/files/x", headers=at("unused")), 404
    )


def test_libraries_are_checked_as_in_the_mcp_tools(server: Server) -> None:
    def install(libraries: list[str]) -> httpx2.Response:
        return HTTP.post(f"{server.url}/libraries", json={"libraries": libraries, "session_id": "libs"}, timeout=60)

    assert "numpy" in failure(install(["numpy"]), 403)
    assert "--index-url" in failure(install(["--index-url=x"]), 400)
    failed = install(["no-such-library"])
    assert (failed.status_code, failed.json()["error_type"]) == (400, "InstallFailed")
    said = failure(HTTP.post(f"{server.url}/libraries", json={"libraries": 5}), 422)
    assert said == "libraries: must be a valid array; see /openapi.json for valid requests"
    log = HTTP.get(f"{server.url}/logs", headers=at("libs")).json()["entries"]
    assert [entry["status"] for entry in log] == ["error"]  # until then, the session had not been opened
    assert "numpy" in failure(install(["numpy"]), 403)
    log = HTTP.get(f"{server.url}/logs", headers=at("libs")).json()["entries"]
    assert [entry["status"] for entry in log] == ["error", "refused"]


REFUSED = {
    "code": (403, "/execute_code/", {"json": {"code": "import threading"}}),
    "a limit": (403, "/execute_code/", {"json": {"code": "1", "timeout_seconds": 61}}),
    "a library": (403, "/libraries", {"json": {"libraries": ["numpy"]}}),
    "a path": (400, "/files/x/../../x", {"content": b"x"}),
}


@pytest.mark.parametrize(("status", "path", "sent"), REFUSED.values(), ids=REFUSED)
def test_refused_requests_take_no_session_from_others(
    server: Server, status: int, path: str, sent: dict[str, Any]
) -> None:
    result(server, "x = 7", "theirs")
    with httpx2.Client(timeout=60) as client:
        for number in range(2 * 32):  # twice sessions.max
            request = client.build_request(
                "POST", server.url, headers=at(f"no-{number}"), extensions={"target": path.encode()}, **sent
            )
            failure(client.send(request), status)
    answer = execute(server, "y = x", "theirs").json()
    assert (answer["result"], answer["notes"]) == ({"y": 7}, [])


def test_limits_are_those_of_the_profile(server: Server) -> None:
    limits = HTTP.get(f"{server.url}/limits").json()
    assert (limits["timeout"], limits["grace"], limits["memory"], limits["upload"]) == (60.0, 2.0, 2 << 30, 1 << 20)
    assert failure(execute(server, "1", timeout_seconds=61), 403) == (
        "timeout must be above 0 and at most 60, the profile's limit; got 61"
    )


def test_logs_list_results_of_requests_but_no_code_and_no_output(server: Server) -> None:
    execute(server, "print('secret')", "logs")
    execute(server, "1 / 0", "logs")
    execute(server, "import threading", "logs")
    HTTP.post(f"{server.url}/libraries", json={"libraries": ["numpy"], "session_id": "logs"})
    log = HTTP.get(f"{server.url}/logs", headers=at("logs"))
    assert [(entry["action"], entry["status"]) for entry in log.json()["entries"]] == [
        ("execute", "ok"),
        ("execute", "error"),
        ("execute", "refused"),
        ("install", "refused"),
    ]
    assert log.json()["entries"][1]["error"] == "ZeroDivisionError: division by zero"
    assert "secret" not in log.text
    assert "1 / 0" not in log.text


BAD: dict[str, tuple[int, dict[str, Any]]] = {
    "not JSON": (400, {"content": b"{"}),
    "UTF-16": (400, {"content": '{"code": "1"}'.encode("utf-16")}),
    "a name of a session that is not valid Unicode": (422, {"content": b'{"code": "1", "session_id": "\\ud800"}'}),
    "too deep": (400, {"content": b'{"code": "1", "local_dict": {"x": ' + b"[" * 5000 + b"]" * 5000 + b"}}"}),
    "a list": (422, {"content": b"[]"}),
    "a number as code": (422, {"content": b'{"code": 5}'}),
    "variables in a list": (422, {"content": b'{"code": "1", "local_dict": []}'}),
    "an invalid variable name": (422, {"content": b'{"code": "1", "local_dict": {"a b": 1}}'}),
    "a name that Python reserves": (422, {"content": b'{"code": "1", "local_dict": {"__builtins__": 1}}'}),
    "a number that is too large": (400, {"content": b'{"code": "1", "local_dict": {"x": 1e999}}'}),
    "a timeout that is text": (422, {"content": b'{"code": "1", "timeout_seconds": "1"}'}),
    "an invalid session": (422, {"content": b'{"code": "1", "session_id": "a b"}'}),
    "an invalid session in the header": (422, {"content": b'{"code": "1"}', "headers": {"X-Session-Id": "../x"}}),
    "too large": (413, {"content": json.dumps({"code": "#" * (5 << 20)}).encode()}),
    "code that is too large": (400, {"content": json.dumps({"code": "#" * (2 << 20)}).encode()}),
    "a form": (400, {"data": {"code": "1"}}),
}


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/execute_code/", "application/json", 413),
        ("/execute_code/", "text/plain", 413),
        ("/files/x", "text/csv", 413),
        ("/none", "text/plain", 404),
        ("/limits", "text/plain", 405),
    ],
)
def test_a_client_that_reads_after_sending_everything_gets_the_reason(
    server: Server, path: str, kind: str, status: int
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    # More than the buffers of sockets can hold.
    body = bytes(20 << 20)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), 30) as caller:
        caller.sendall(head.encode() + body)
        assert caller.makefile("rb").readline().split()[1] == b"%d" % status


@pytest.mark.parametrize(("status", "request_"), BAD.values(), ids=BAD)
def test_an_invalid_body_is_refused_in_one_line(server: Server, status: int, request_: dict[str, Any]) -> None:
    headers = {} if "data" in request_ else {"Content-Type": "application/json"}
    headers |= request_.pop("headers", {})
    failure(HTTP.post(f"{server.url}/execute_code/", headers=headers, **request_), status)


def test_a_body_of_unknown_length_is_limited_too(server: Server) -> None:
    def endless() -> Any:
        while True:
            yield b"x" * (1 << 16)

    # The server closes the connection; the client may notice this before it has read the answer.
    with suppress(httpx2.TransportError):
        assert failure(HTTP.post(f"{server.url}/files/large", content=endless()), 413)
    refused = HTTP.post(f"{server.url}/files/large", content=b"x" * ((1 << 20) + 1))
    assert failure(refused, 413).startswith("the body is larger than the limit of 1MiB")
    assert HTTP.get(f"{server.url}/files/large").status_code == 404


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_requests_for_another_host_or_from_a_page_of_another_host_are_refused(
    server: Server, method: str, path: str
) -> None:
    for headers, status in (({"Host": "example.com"}, 421), ({"Origin": "http://example.com"}, 403)):
        assert failure(HTTP.request(method, server.url + path, headers=headers), status)
    assert HTTP.request(method, server.url + path, headers={"Origin": "http://localhost:5173"}).status_code != 403
    if method != "GET":  # a page of another site may lead here
        assert failure(HTTP.request(method, server.url + path, headers={"Sec-Fetch-Site": "cross-site"}), 403)
    assert HTTP.request(method, server.url + path, headers={"Sec-Fetch-Site": "none"}).status_code != 403


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_if_a_token_is_required_requests_without_it_are_refused(guarded: Server, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        refused = HTTP.request(method, guarded.url + path, headers=headers)
        assert refused.status_code == 401
        assert TOKEN not in refused.text
    assert HTTP.request(method, guarded.url + path, headers=BEARER).status_code != 401


def test_a_caller_with_the_token_can_run_code(guarded: Server) -> None:
    ran = HTTP.post(f"{guarded.url}/execute_code/", json={"code": "x = 1"}, headers=BEARER, timeout=30)
    assert ran.json()["result"] == {"x": 1}
    for path in ("/", "/health"):
        assert HTTP.get(guarded.url + path).json()["status"] == "healthy"


def test_without_the_key_in_the_profile_these_paths_do_not_exist(plain: Server) -> None:
    for method, path in [*PLACES, ("GET", "/")]:
        assert HTTP.request(method, plain.url + path).status_code == 404
    assert HTTP.get(f"{plain.url}/health").text == "ok\n"


def test_the_server_ends_on_a_signal_while_code_runs(passing: Server) -> None:
    execute(passing, "x = 1", "busy")
    with ThreadPoolExecutor() as others:
        running = others.submit(execute, passing, "while True: pass", "busy", timeout_seconds=60)
        # Reading a file has to wait while code runs in the session.
        while True:
            try:
                HTTP.get(f"{passing.url}/files/none", headers=at("busy"), timeout=0.5)
            except httpx2.ReadTimeout:
                break
        assert "Traceback" not in stop(passing)
        with suppress(httpx2.TransportError):
            assert running.result().status_code != 200


def test_for_a_method_that_is_not_allowed_the_allowed_methods_are_listed(server: Server) -> None:
    refused = HTTP.delete(f"{server.url}/files/x")
    assert failure(refused, 405)
    assert {method.strip() for method in refused.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["legacy", "sse"])
async def test_mcp_is_also_served(server: Server, way: str) -> None:
    async with server.connect(way) as client:
        assert (await answer(client, "execute_code", code="6 * 7"))["result"] == "42"
