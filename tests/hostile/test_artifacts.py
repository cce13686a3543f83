"""Attack: huge, many, oddly named and changing artifacts. Outcome: capped, and the result says what was left out."""

from pathlib import Path

import anyio
import pytest
from mcp.types import ImageContent, ResourceLink

from llm_sandbox_mcp.base.results import Overview
from llm_sandbox_mcp.server.content import attach
from llm_sandbox_mcp.testing.asking import execute
from tests.engines import MIB
from tests.hostile.calls import NONCE
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio


async def test_a_file_over_the_limit_is_left_out_and_named(arena: Arena) -> None:
    result = await arena.attack("open('huge', 'wb').write(b'x' * (5 << 20))\nopen('small', 'w').write('x')")
    assert [artifact.name for artifact in result.artifacts] == ["small"]
    assert any("huge (5MiB) was not kept; the limit is 1MiB" in note for note in result.notes), result


async def test_of_ten_thousand_files_ten_are_kept_and_the_rest_is_counted(arena: Arena) -> None:
    result = await arena.attack("for number in range(10_000): open(f'{number:05}', 'w').write('x')", timeout=20)
    assert result.status == "ok", result
    assert len(result.artifacts) == 10
    assert any("9990 more files were changed and not kept" in note for note in result.notes), result.notes


async def test_the_store_is_bounded_over_runs(arena: Arena) -> None:
    session = ""
    for number in range(8):
        code = f"open('file-{number}', 'wb').write(b'x' * 1_000_000)\nNone"
        session = (await arena.attack(code, session_id=session)).session_id
    kept = arena.service.files.artifacts(session)
    assert sum(artifact.size for artifact in kept) <= 4 * MIB
    assert kept[-1].name == "file-7"


# The limits of all these cases, but in a store of its own: files of other sessions would keep their share.
@pytest.mark.parametrize("limits", [{"artifacts": {"files": 10, "file_size": MIB, "store": 4 * MIB}}], indirect=True)
async def test_a_run_that_fills_the_store_alone_reports_what_is_kept(arena: Arena) -> None:
    earlier = await arena.attack("open('earlier', 'wb').write(b'x' * 1_000_000)\nNone")
    some = await arena.attack(
        "for number in range(4): open(f'{number}', 'wb').write(b'x' * 1_000_000)", session_id=earlier.session_id
    )
    keys = "artifacts.store_files and artifacts.store in the profile"
    bounds = f"the store keeps at most 10000 files and 4MiB for all sessions together ({keys}); write fewer, or smaller files"
    assert len(some.artifacts) == 4
    assert f"1 earlier artifacts of this session were dropped to make room; {bounds}" in some.notes, some.notes
    result = await arena.attack(
        "for number in range(9): open(f'{number}', 'wb').write(b'y' * 1_000_000)", session_id=earlier.session_id
    )
    assert result.status == "ok", result
    assert len(result.artifacts) == 4
    for artifact in result.artifacts:
        await arena.service.files.read_artifact(result.session_id, artifact.name)
    assert f"5 files of this run were dropped to make room for others; {bounds}" in result.notes, result.notes


@pytest.mark.parametrize("limits", [{"limits": {"disk": 1 << 30}}], indirect=True)
async def test_sparse_files_over_the_limit_are_not_copied(arena: Arena) -> None:
    result = await arena.attack(
        "for number in range(8):\n    open(f'sparse-{number}', 'wb').truncate((1 << 30) - 1)\n"
        "open('tail', 'w').write('x')"
    )
    assert result.status == "ok", result
    assert [artifact.name for artifact in result.artifacts] == ["tail"], result
    assert sum("was not kept" in note for note in result.notes) == 8


async def test_both_names_of_one_file_are_kept(arena: Arena) -> None:
    result = await arena.attack("import os\nopen('one', 'w').write('x')\nos.link('one', 'two')")
    assert {artifact.name: artifact.size for artifact in result.artifacts} == {"one": 1, "two": 1}, result


ODD = ["-rf", "--checkpoint-action=exec=sh", "a\nb", "*", "a..", "a b", "ünï", "\\n", "a\\101b", "@x"]


async def test_odd_names_are_kept_as_they_are(arena: Arena) -> None:
    result = await arena.attack(f"for name in {ODD!r}: open(name, 'w').write(name)")
    assert {artifact.name for artifact in result.artifacts} == set(ODD), result
    for name in ODD:
        _, content = await arena.service.files.read_artifact(result.session_id, name)
        assert content.decode() == name


async def test_a_name_that_is_not_text_is_left_out_and_counted(arena: Arena) -> None:
    result = await arena.attack("open(b'\\xff\\xfe', 'w').write('x')\nopen('plain', 'w').write('x')")
    assert result.status == "ok", result
    assert "plain" in {artifact.name for artifact in result.artifacts}
    assert any("not kept" in note for note in result.notes) or len(result.artifacts) == 2, result


async def test_files_that_become_links_while_they_are_copied_out_give_no_other_content(arena: Arena) -> None:
    result = await arena.attack("""
import os
for number in range(8):
    open(str(number), 'w').write('x')
if os.fork() == 0:
    os.setsid()
    os.symlink('/proc/1/environ', '/tmp/l')
    while True:
        for number in range(8):
            for make in (lambda: os.symlink('/etc/passwd', f'{number}.new'), lambda: open(f'{number}.new', 'w').write('x')):
                try:
                    make()
                    os.rename(f'{number}.new', str(number))
                except OSError:
                    pass
""")
    assert result.status == "ok", result
    for artifact in result.artifacts:
        _, content = await arena.service.files.read_artifact(result.session_id, artifact.name)
        assert content in (b"x", b"", b"\0"), content


async def test_folders_that_become_links_while_they_are_scanned_lead_nowhere_else(arena: Arena) -> None:
    result = await arena.attack("""
import os
print(open('/etc/passwd').read(), end='')
for number in range(50):
    os.makedirs(f'{number}/etc')
    open(f'{number}/etc/passwd', 'w').write('x')
if os.fork() == 0:
    os.setsid()
    while True:
        for number in range(50):
            os.rename(f'{number}', '/tmp/away') if os.stat('/tmp').st_dev == os.stat('.').st_dev else os.rename(f'{number}', '.away')
            os.symlink('/', f'{number}')
            os.unlink(f'{number}')
            os.rename('.away' if os.path.exists('.away') else '/tmp/away', f'{number}')
""")
    assert result.status == "ok", result
    own = result.stdout.text.encode()  # if `tar` inside the sandbox follows the link, it reads this
    assert own != Path("/etc/passwd").read_bytes()
    for artifact in result.artifacts:
        _, content = await arena.service.files.read_artifact(result.session_id, artifact.name)
        assert content in (b"x", b"", own), artifact


async def test_a_file_that_is_not_regular_is_not_an_artifact_and_delays_nobody(arena: Arena) -> None:
    result = await arena.attack("""
import os, socket
os.mkfifo('fifo')
os.mkfifo('.hidden')
socket.socket(socket.AF_UNIX).bind('socket')
for target in ('/dev/zero', '/proc/self/environ', '/', '.', 'link'): os.symlink(target, f'link-{target.replace("/", "-")}')
os.symlink('link', 'link')
os.makedirs('folder/locked')
os.mkfifo('folder/fifo')
os.chmod('folder/locked', 0)
open('file', 'w').write('x')
None
""")
    assert result.status == "ok" and result.duration < ANSWER, result
    assert [artifact.name for artifact in result.artifacts] == ["file"], result


async def test_files_of_later_runs_cannot_reach_the_store_by_forged_names(arena: Arena) -> None:
    result = await arena.attack(
        NONCE
        + """
import json
open('data', 'w').write('x')
end(json.dumps({'status': 'ok', 'exit_code': 0, 'files': ['data'] * 100_000, 'files_omitted': 10 ** 300}).encode())
"""
    )
    assert result.duration < ANSWER
    assert len(result.artifacts) <= 1


async def test_a_picture_that_takes_long_to_check_is_only_linked(arena: Arena) -> None:
    result = await arena.attack("""
import struct, zlib
def chunk(name, content): return struct.pack('>I', len(content)) + name + content + struct.pack('>I', zlib.crc32(name + content))
begin = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 3, 2, 8, 0, 0, 0, 0))
end = chunk(b'IDAT', zlib.compress(bytes(8))) + chunk(b'IEND', b'')
open('whole.png', 'wb').write(begin + end)
open('chunks.png', 'wb').write(begin + chunk(b'tEXt', b'') * 80_000 + end)
""")
    assert {artifact.name for artifact in result.artifacts} == {"whole.png", "chunks.png"}, result
    blocks, _ = await attach(arena.service, result.session_id, result.artifacts, embed=True)
    assert [block.name for block in blocks if isinstance(block, ResourceLink)] == ["chunks.png"]
    assert sum(isinstance(block, ImageContent) for block in blocks) == 1


FORGED = {
    "a part of a picture": "os.write(1, b'\\x89PNG\\r\\n\\x1a\\n' + bytes(100))",
    "without end": "while True: os.write(1, bytes(10_000))",
    "without end, as errors": "while True: os.write(2, bytes(10_000))",
    "nothing": "",
}


@pytest.mark.parametrize("printed", FORGED)
async def test_what_code_prints_instead_of_an_overview_is_not_shown(arena: Arena, printed: str) -> None:
    package = f"import os\n{FORGED[printed]}\nos._exit(0)"
    code = f"""
import os, struct
os.makedirs('/home/libraries/python/PIL', exist_ok=True)
open('/home/libraries/python/PIL/__init__.py', 'w').write({package!r})
header = struct.pack('>I', 13) + b'IHDR' + struct.pack('>IIBBBBB', 9000, 2, 8, 0, 0, 0, 0) + bytes(4)
open('a.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + header)
"""
    with anyio.fail_after(ANSWER):
        result = await execute(arena.service, code, looks=True)
    assert (result.status, [artifact.width for artifact in result.artifacts]) == ("ok", [9000]), result
    assert result.overview == Overview(lacking="the sandbox could not make them smaller")
    assert (await execute(arena.service, "1 + 1", session_id=result.session_id)).result == "2"
