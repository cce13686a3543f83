"""A server with a token: clients with the token get in, at any address. Others do not, and the token is never shown."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from .results import answer
from .serving import SERVE, Server, bearing, start, stop
from .test_http import JSON, PLACES, WAYS

pytestmark = pytest.mark.anyio

TOKEN = secrets.token_hex(16)
BEARER = {"authorization": f"Bearer {TOKEN}"}
HOST = "sandbox.example"


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(30):
        yield


def with_token(profile: Path, folder: Path, token: bytes) -> Path:
    """Writes a token to a file, and a profile that uses it."""
    file, own = folder / "token", folder / "profile.toml"
    file.write_bytes(token)
    own.write_text(f'{profile.read_text()}[http]\nhosts = ["{HOST}"]\ntoken_file = "{file}"\n[pool]\nmin = 0\n')
    return own


@pytest.fixture(scope="module")
def guarded(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a token that listens on every address of this machine."""
    own = with_token(profile, tmp_path_factory.mktemp("guarded"), f"{TOKEN}\n".encode())
    server = start(own, "--host", "0.0.0.0")
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    yield server
    said = stop(server)
    assert "Traceback" not in said
    assert TOKEN not in said
    assert server.process.returncode == 0, said


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_with_the_token_runs_code(guarded: Server, way: str) -> None:
    async with bearing(guarded.url, way, BEARER) as client:
        first = await answer(client, "execute_code", code="x=42", language="bash")
        again = await answer(client, "execute_code", code="echo $x", language="bash", session_id=first["session_id"])
        assert again["stdout"] == "42\n"


# With names, because the random token must not be part of a test id: ids must be the same in every process of xdist.
STRANGERS = {
    "nothing": {},
    "an empty header": {"authorization": ""},
    "no token": {"authorization": "Bearer"},
    "another": {"authorization": "Bearer wrong"},
    "one character more": {"authorization": f"Bearer {TOKEN}0"},
    "one character less": {"authorization": f"Bearer {TOKEN[:-1]}"},
    "another scheme": {"authorization": f"Basic {TOKEN}"},
    "no scheme": {"authorization": TOKEN},
    "no text": {"authorization": "Bearer \xff\xfe"},
    "other headers": {"x-authorization": f"Bearer {TOKEN}", "cookie": f"authorization={TOKEN}"},
}


@pytest.mark.parametrize(
    ("method", "path"), [*PLACES, ("DELETE", "/mcp"), ("GET", "/nothing"), ("GET", "/health/more")]
)
@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS)
async def test_a_request_without_the_token_is_refused(
    guarded: Server, method: str, path: str, headers: dict[str, str]
) -> None:
    async with httpx2.AsyncClient() as http:
        every = {name.encode(): value.encode("latin-1") for name, value in {**JSON, **headers}.items()}
        refused = await http.request(method, f"{guarded.url}{path}?token={TOKEN}", headers=every, content=b"{}")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer ")
    assert TOKEN not in refused.text


@pytest.mark.parametrize(("method", "path"), PLACES)
async def test_the_token_does_not_let_in_requests_for_another_host(guarded: Server, method: str, path: str) -> None:
    async with httpx2.AsyncClient(headers={**JSON, **BEARER, "host": "example.com"}) as http:
        refused = await http.request(method, f"{guarded.url}{path}", content=b"{}")
    assert refused.status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"host": HOST},
        {"host": f"{HOST}:8443", "origin": f"https://{HOST}:8443"},
        {"host": HOST, "origin": f"https://{HOST}"},
        {"host": "localhost"},
    ],
    ids=str,
)
async def test_requests_for_a_host_of_the_profile_are_accepted(guarded: Server, headers: dict[str, str]) -> None:
    async with (
        httpx2.AsyncClient(headers={**BEARER, **headers}) as http,
        http.stream("GET", f"{guarded.url}/sse") as stream,
    ):
        assert stream.status_code == 200


async def test_a_health_check_needs_no_token_and_reveals_nothing(guarded: Server, server: Server) -> None:
    for each in (guarded, server):
        async with httpx2.AsyncClient(headers={"host": "10.0.0.7:8000"}) as http:
            answered = await http.get(f"{each.url}/health")
            assert (answered.status_code, answered.text) == (200, "ok\n")


async def test_a_token_that_cannot_be_used_stops_the_start_in_one_line(profile: Path, tmp_path: Path) -> None:
    own = with_token(profile, tmp_path, b"fifteen-letters\n")
    done = await anyio.run_process([*SERVE, "--port", "0", "--profile", str(own)], check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    printed = done.stderr.decode()
    assert printed.startswith(f"llm-sandbox-mcp: http.token_file: the token in {tmp_path}/token must have at least 16")
    assert "fifteen" not in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("path", ["/mcp", "/messages/?session_id=0", "/nothing"])
async def test_without_the_token_a_request_is_answered_before_its_body(guarded: Server, path: str) -> None:
    address = guarded.url.removeprefix("http://").partition(":")
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4000000\r\n\r\n"
    async with await anyio.connect_tcp(address[0], int(address[2])) as client:
        await client.send(head.encode())
        assert (await client.receive()).startswith(b"HTTP/1.1 401 ")
