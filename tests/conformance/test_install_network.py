"""While libraries are installed, a sandbox reaches only their index, whatever else its profile grants to code."""

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install
from tests.engines import MIB, need_image, small_profile
from tests.local_index import LocalIndex, Page, local_index, sdist

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
    'index': ask(port, b'GET /phones/' + head + host + b'\\r\\n\\r\\n'),
}
for odd in (b'GET /private', b'GET /../private', b'GET /%2e%2e/private', b'GET //' + own + b'/private', b'PUT /phones/',
            b'GET http://' + own + b'/private', b'GET /..;/private', b'GET /%252e%252e/private', b'CONNECT ' + own):
    asked[odd.decode()] = ask(port, odd + head + host + b'\\r\\n\\r\\n')
asked['another host'] = ask(port, b'GET /phones/' + head + own + b'\\r\\n\\r\\n')
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

POSTINSTALL = """
const fs = require('fs'), net = require('net');
const index = new URL(process.env.npm_config_registry);
const ask = (port, raw) => new Promise((answered) => {
    const one = net.connect(port, '127.0.0.1', () => one.write(raw));
    one.on('data', (data) => { answered(String(data).split(' ')[1]); one.destroy(); });
    one.on('error', (error) => answered(error.code));
    one.on('close', () => answered('closed'));
});
const head = ` HTTP/1.1\\r\\nConnection: close\\r\\nHost: ${index.host}\\r\\n\\r\\n`;
(async () => {
    const asked = {
        granted: await ask(3128, 'CONNECT 127.0.0.1:SITE' + head),
        index: await ask(index.port, `GET ${index.pathname}phones` + head),
        another: await ask(index.port, 'GET http://127.0.0.1:INDEX/private' + head),
        directly: await ask(INDEX, 'GET /private' + head),
    };
    fs.writeFileSync('/sandbox/asked.json', JSON.stringify(asked));
    // Another one stays, and looks again and again.
    const looks = `setInterval(() => { const one = require('net').connect(${index.port}, '127.0.0.1');
        one.on('connect', () => { require('fs').appendFileSync('/sandbox/looks', 'reached '); one.destroy(); });
        one.on('error', (error) => require('fs').appendFileSync('/sandbox/looks', error.code + ' ')); }, 20)`;
    require('child_process').spawn('node', ['-e', looks], { detached: true, stdio: 'ignore' }).unref();
    while (!fs.existsSync('/sandbox/looks')) await new Promise((over) => setTimeout(over, 10));
})();
"""
LOOKS = """
const seen = () => require('fs').readFileSync('/sandbox/looks', 'utf8').trim().split(' ');
const before = seen().length;
while (seen().length < before + 5) await new Promise((over) => setTimeout(over, 20));
console.log(seen()[0], seen().at(-1));
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
    limits = {"memory": 512 * MIB, "pids": 128}
    upstream = index.url.replace("://", "://someone:hunter2@")
    languages = {
        "python": LanguageSection(index=f"{upstream}/simple/"),
        "javascript": LanguageSection(index=f"{upstream}/"),
    }
    return small_profile(backend_name, folder, network=network, limits=limits).model_copy(
        update={"languages": languages}
    )


async def test_code_of_a_package_that_is_being_built_reaches_the_index_and_no_granted_host(
    service: Service, site: LocalIndex, index: LocalIndex, caplog: pytest.LogCaptureFixture
) -> None:
    code = (ASK + BUILD).replace("SITE", str(site.port)).replace("INDEX", str(index.port))
    index.add_project("phones", sdist("phones", code), index)
    before = await execute(service, f"{ASK.replace('SITE', str(site.port))}\ngranted()")
    assert before.result == "'200'", before
    with anyio.fail_after(60):
        await install(service, ["phones"], session_id=before.session_id)
    after = await execute(service, "print(open('asked.json').read(), end='')\ngranted()", session_id=before.session_id)
    assert after.result == "'200'", after
    asked = json.loads(after.stdout.text)
    assert (asked.pop("index"), asked.pop("credentials")) == ("200", "False"), asked
    assert set(asked.values()) <= {"400", "403", "404", "405"}, asked
    assert (asked["granted"], asked["in plain"], asked["the index by name"]) == ("403", "403", "403")
    assert "/private" not in [path for path, _ in index.requests]
    assert site.requests == []
    assert [line["target"] for line in logged(caplog)][:1] == [f"127.0.0.1:{site.port}"]
    assert "hunter2" not in caplog.text + repr(before) + repr(after)


@pytest.mark.parametrize("language", ["javascript"])
async def test_a_script_after_the_installation_reaches_the_index_and_what_it_leaves_running_does_not(
    service: Service, backend_name: str, site: LocalIndex, index: LocalIndex, language: str
) -> None:
    need_image(backend_name, language)
    code = POSTINSTALL.replace("SITE", str(site.port)).replace("INDEX", str(index.port))
    index.add_npm("phones", index, postinstall=code)
    session = (await execute(service, "1", language=language)).session_id
    with anyio.fail_after(60):
        await install(service, ["phones"], language=language, session_id=session)
    read = "process.stdout.write(require('fs').readFileSync('/sandbox/asked.json', 'utf8'))"
    asked = json.loads((await execute(service, read, language=language, session_id=session)).stdout.text)
    assert asked == {"granted": "403", "index": "200", "another": "400", "directly": "ECONNREFUSED"}
    looked = await execute(service, LOOKS, language=language, session_id=session)
    assert looked.stdout.text == "reached ECONNREFUSED\n", looked
    assert "/private" not in [path for path, _ in index.requests]
