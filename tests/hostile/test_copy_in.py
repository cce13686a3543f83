"""Attack: copying files in to places outside the working directory, by name or through links. Outcome: the path is
refused, or the link is not followed."""

import pytest

from llm_sandbox_mcp.base.errors import BadPath
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

OUTSIDE = [
    *(
        "../x",
        "..",
        ".",
        "",
        "/",
        "/etc/passwd",
        "/sandbox",
        "/sandbox/",
        "/sandbox/../etc/x",
        "a/../../x",
        "a/",
        "//etc/x",
    ),
    *("/sandboxed/x", "a\0b", "x" * 1025, "a/./../../x", "\ud800", "/sandbox/../../x", "/home/x", "/tmp/x", "a/.."),
]

ODD = [
    *(
        "-rf",
        "--checkpoint-action=exec=sh",
        "a\nb",
        "*",
        "~",
        "$(id)",
        "a b",
        "ünïcödé",
        "\\n",
        "a\\101",
        "...",
        "..a",
        "-",
    ),
    *(
        "nested/deeply/in/folders",
        "x" * 200,
        "é" * 100,
        "a\tb",
        "@file",
        "'quoted'",
        '"',
        "a:b",
        "host:file",
        "\x1b[31m",
        "\x7f",
    ),
    *("d" * 90 + "/" + "e" * 90, "/".join(["long"] * 100)),
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_outside_is_refused(arena: Arena, path: str) -> None:
    with pytest.raises(BadPath):
        await arena.service.files.copy_in(arena.neighbour, path, b"x")
    with pytest.raises(BadPath):
        await arena.service.files.copy_out(arena.neighbour, path)


async def test_odd_names_are_names_like_any_other(arena: Arena) -> None:
    session = (await arena.attack("None")).session_id
    for path in ODD:
        await arena.service.files.copy_in(session, path, path.encode())
    output = await arena.check(
        "import os\nfor folder, _, names in os.walk('.'):\n    for name in names:\n"
        "        path = os.path.relpath(os.path.join(folder, name))\n        assert open(path).read() == path, path\n        print(1)",
        session,
    )
    assert output == "1\n" * len(ODD)
    for path in ODD:
        artifact = await arena.service.files.copy_out(session, path)
        _, content = await arena.service.files.read_artifact(session, artifact.name)
        assert (artifact.name, content.decode()) == (path, path)


@pytest.mark.in_turns
@pytest.mark.parametrize("link", ["/etc", "/home", "/tmp", "/proc/self/cwd/../home", "../home", "/nowhere"])
async def test_a_planted_folder_link_is_not_followed(arena: Arena, link: str) -> None:
    session = (await arena.attack(f"import os\nos.symlink({link!r}, 'a')")).session_id
    try:
        await arena.service.files.copy_in(session, "a/b/planted", b"x")
    except BadPath:
        pass
    else:
        output = await arena.check("import os\nprint(os.path.realpath('a/b/planted'))", session)
        assert output == "/sandbox/a/b/planted\n"
    output = await arena.check(
        "import os\nprint([f for f in ('/etc/b', '/home/b', '/tmp/b', '/nowhere') if os.path.exists(f)])", session
    )
    assert output == "[]\n"


async def test_a_link_or_fifo_with_the_name_of_a_file_is_replaced_and_not_opened(arena: Arena) -> None:
    session = (
        await arena.attack("""
import os
open('/home/target', 'w').write('untouched')
os.symlink('/home/target', 'link')
os.link('/home/target', 'hard') if os.stat('/home').st_dev == os.stat('.').st_dev else open('hard', 'w').close()
os.mkfifo('fifo')
os.symlink('loop', 'loop')
os.makedirs('folder/full')
""")
    ).session_id
    for name in ("link", "hard", "fifo", "loop"):
        await arena.service.files.copy_in(session, name, b"new")
    with pytest.raises(BadPath, match="folder"):
        await arena.service.files.copy_in(session, "folder", b"new")
    output = await arena.check(
        "print(open('/home/target').read(), *(open(n).read() for n in ('link', 'hard', 'fifo', 'loop')))", session
    )
    assert output == "untouched new new new new\n"


async def test_links_that_are_swapped_during_a_copy_harm_nobody_else(arena: Arena) -> None:
    session = (
        await arena.attack("""
import os
if os.fork() == 0:
    os.setsid()
    os.mkdir('/tmp/real')
    os.symlink('/etc', '/tmp/link')
    while True:
        for source in ('/tmp/real', '/tmp/link'):
            try:
                os.rename('a', '/tmp/old') if os.path.lexists('a') else None
            except OSError:
                pass
            try:
                os.symlink(source, 'a')
            except OSError:
                pass
""")
    ).session_id
    for number in range(20):
        try:
            await arena.service.files.copy_in(session, "a/planted", b"%d" % number)
            await arena.service.files.copy_out(session, "a/planted")
        except BadPath:
            continue


async def test_a_link_is_not_copied_out(arena: Arena) -> None:
    session = (
        await arena.attack("import os\nos.symlink('/proc/self/environ', 'out')\nos.mkfifo('fifo')\nos.mkdir('folder')")
    ).session_id
    for name in ("out", "fifo", "folder", "missing"):
        with pytest.raises(BadPath, match="not a regular file"):
            await arena.service.files.copy_out(session, name)


@pytest.mark.parametrize("size", [(16 << 20) + 1, 16 << 20])
async def test_a_file_that_does_not_fit_is_refused_with_the_reason(arena: Arena, size: int) -> None:
    session = (await arena.attack("open('other', 'wb').write(b'x' * 9_000_000)\nNone")).session_id
    with pytest.raises(BadPath, match=r"limit is 16MiB|disk limit of 16MiB is reached"):
        await arena.service.files.copy_in(session, "large", bytes(size))
