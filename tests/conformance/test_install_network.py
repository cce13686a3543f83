"""While libraries are installed a sandbox reaches their index alone, whatever else its profile grants its code."""

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from tests.engines import small_profile
from tests.unit.local_index import LocalIndex, Page, local_index, sdist

from .test_network_by_name import logged

pytestmark = pytest.mark.anyio

ASK = """
import glob, json, os, re, socket
def ask(port, raw):
    try:
        with socket.create_connection(('127.0.0.1', port), 10) as one:
            one.sendall(raw)
            return one.recv(1 << 16).split(b' ')[1].decode()
    except OSError as error:
        return type(error).__name__
def granted():
    return ask(3128, b'CONNECT 127.0.0.1:SITE HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
"""
BUILD = """
read = []
for path in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ'):
    try:
        read.append(open(path, 'rb').read())
    except OSError:
        pass
port = int(re.search(rb'http://127[.]0[.]0[.]1:(\\d+)', b' '.join(read))[1])
host = b'127.0.0.1:%d' % port
head = b' HTTP/1.1\\r\\nConnection: close\\r\\nHost: '
own = b'127.0.0.1:INDEX'
asked = {
    'granted': granted(),
    'in plain': ask(3128, b'GET http://127.0.0.1:SITE/' + head + b'127.0.0.1:SITE\\r\\n\\r\\n'),
    'the index by name': ask(3128, b'CONNECT ' + own + head + own + b'\\r\\n\\r\\n'),
    'index': ask(port, b'GET /simple/phones/' + head + host + b'\\r\\n\\r\\n'),
}
for odd in (b'GET /private', b'GET /simple/../private', b'GET /simple/%2e%2e/private', b'GET //' + own + b'/private', b'PUT /simple/phones/',
            b'GET http://' + own + b'/private', b'GET /simple/..;/private', b'GET /simple/%252e%252e/private', b'CONNECT ' + own):
    asked[odd.decode()] = ask(port, odd + head + host + b'\\r\\n\\r\\n')
asked['another host'] = ask(port, b'GET /simple/phones/' + head + own + b'\\r\\n\\r\\n')
places = [os.path.join(folder, name) for top in ('/tmp', '/home', '/sandbox') for folder, _, names in os.walk(top) for name in names]
for path in places:
    try:
        with open(path, 'rb') as file:
            read.append(file.read(1 << 20))
    except OSError:
        pass
asked['credentials'] = str(any(b'hunter' + b'2' in content for content in read))
with open('/sandbox/asked.json', 'w') as file:
    json.dump(asked, file)
"""


@pytest.fixture
def site() -> Iterator[LocalIndex]:
    with local_index() as serving:
        yield serving


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as serving:
        serving.pages["/private"] = Page(b"private")
        yield serving


@pytest.fixture
def profile(backend_name: str, folder: Path, site: LocalIndex, index: LocalIndex) -> Profile:
    network = {"mode": "allow", "domains": (f"127.0.0.1:{site.port}",)}
    upstream = index.url.replace("://", "://someone:hunter2@") + "/simple/"
    made = small_profile(backend_name, folder, network=network)
    return made.model_copy(update={"languages": {"python": LanguageSection(index=upstream)}})


async def test_what_a_package_runs_while_it_is_built_reaches_the_index_and_nothing_that_is_granted(
    service: Service, site: LocalIndex, index: LocalIndex, caplog: pytest.LogCaptureFixture
) -> None:
    code = (ASK + BUILD).replace("SITE", str(site.port)).replace("INDEX", str(index.port))
    index.add_project("phones", sdist("phones", code), index)
    before = await service.execute(f"{ASK.replace('SITE', str(site.port))}\ngranted()")
    assert before.result == "'200'", before
    with anyio.fail_after(60):
        await service.install(["phones"], session_id=before.session_id)
    after = await service.execute("print(open('asked.json').read(), end='')\ngranted()", session_id=before.session_id)
    assert after.result == "'200'", after
    asked = json.loads(after.stdout.text)
    assert (asked.pop("index"), asked.pop("credentials")) == ("200", "False"), asked
    assert set(asked.values()) <= {"400", "403", "404", "405"}, asked
    assert (asked["granted"], asked["in plain"], asked["the index by name"]) == ("403", "403", "403")
    assert "/private" not in [path for path, _ in index.requests]
    assert site.requests == []
    assert [line["target"] for line in logged(caplog)][:1] == [f"127.0.0.1:{site.port}"]
    assert "hunter2" not in caplog.text + repr(before) + repr(after)
