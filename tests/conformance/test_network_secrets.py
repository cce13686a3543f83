"""Code can use a secret of the profile on every backend, and the secret is nowhere in its sandbox."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from mcp import Client

from llm_sandbox_mcp.cli.toml import as_toml
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.profile.sections import SecretSection
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.tls_site import ODD, Site, tls_site

pytestmark = pytest.mark.anyio

SECRET = "Bearer hunter2-hunter2"
LOOK = r"""
import glob, http.client, os
c = http.client.HTTPConnection('127.0.0.1', 3128, timeout=20)
c.request('POST', 'http://127.0.0.1:PORT/path', body=b'asked', headers={'Authorization': 'mine', 'Host': '127.0.0.1:PORT'})
answer = c.getresponse()
print(answer.status, answer.read(), answer.getheaders())
for pattern in ('/proc/[0-9]*/environ', '/proc/[0-9]*/cmdline', '/etc/*', '/opt/**/*', '/tmp/**/*', '/home/**/*', '/sandbox/**/*'):
    for path in glob.glob(pattern, recursive=True):
        try:
            content = open(path, 'rb').read(1 << 20)
        except OSError:
            continue
        if b'hunter' + b'2' in content and b'glob.glob' not in content:
            print('found in', path)
"""
ASK = r"""
import socket
def ask(path):
    with socket.create_connection(('127.0.0.1', 3128), 20) as one:
        one.sendall(f'GET http://127.0.0.1:PORT/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'.encode())
        got = b''
        try:
            while more := one.recv(1 << 16):
                got += more
        except ConnectionResetError:
            pass
    return got
kept = 'kept'
for number in range(COUNT):
    ask(f'odd/{number}')
    print(ask('')[9:12].decode())
"""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with tls_site(monkeypatch) as serving:
        yield serving


@pytest.fixture
def changes(site: Site, folder: Path) -> dict[str, Mapping[str, object]]:
    token = folder / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    secret = SecretSection(domain=f"127.0.0.1:{site.port}", header="Authorization", value_file=str(token))
    return {"network": {"mode": "allow", "secrets": (secret,)}}


async def test_a_secret_is_used_and_never_seen(
    service: Service, profile: Profile, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    ran = await execute(service, LOOK.replace("PORT", str(site.port)))
    assert ran.stdout.text.startswith("200 b'answer'"), ran
    assert "found" not in ran.stdout.text
    [(method, path, headers, body)] = site.asked
    assert (method, path, headers["authorization"], body) == ("POST", "/path", SECRET, b"asked")
    async with Client(build_server(service, host_files=False)) as client:
        shown = str(await client.read_resource("sandbox://profile"))
    assert f"127.0.0.1:{site.port}" in shown
    assert "hunter2" not in repr(ran) + shown + as_toml(profile) + caplog.text


async def test_a_host_with_a_secret_that_answers_oddly_takes_nothing_from_the_session(
    service: Service, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for number, odd in enumerate(ODD.values()):
        site.raw[f"/odd/{number}"] = odd
    ran = await execute(service, ASK.replace("PORT", str(site.port)).replace("COUNT", str(len(ODD))))
    assert ran.stdout.text == "200\n" * len(ODD), ran
    again = await execute(service, "print(kept, ask('')[9:12])", session_id=ran.session_id)
    assert again.stdout.text == "kept b'200'\n", again
    assert "Traceback" not in caplog.text
