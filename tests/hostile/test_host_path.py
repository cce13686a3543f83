"""Attack: reaching files of the host with the copy tool. Outcome: refused, unless they are below a root that the
operator set."""

import os
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import BadHostPath
from llm_sandbox_mcp.base.open_folders import OpenFolder
from tests.engines import host_folder
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


async def test_without_roots_no_host_path_is_allowed(arena: Arena) -> None:
    for path in (
        str(arena.canaries.private),
        str(arena.canaries.public),
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "relative",
        "",
    ):
        with pytest.raises(BadHostPath, match="no folder on this machine is open"):
            await arena.service.files.copy_in_from_host(arena.neighbour, "x", path, ())
        with pytest.raises(BadHostPath, match="no folder on this machine is open"):
            await arena.service.files.copy_out_to_host(arena.neighbour, "x", path)


async def test_with_a_root_only_paths_below_it_are_allowed(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    session = (await arena.attack("open('out', 'w').write('from inside')")).session_id
    with host_folder() as root:
        opened = (OpenFolder(str(root), writable=True),)
        monkeypatch.setattr(arena.service.files, "folders", opened)
        (root / "good").write_text("fine")
        (root / "link").symlink_to(arena.canaries.public)
        (root / "folder").symlink_to(arena.canaries.public.parent)
        (root / "dangling").symlink_to(root.parent / "not-there")
        os.mkfifo(root / "fifo")
        bad = [
            *(
                str(arena.canaries.private),
                str(arena.canaries.public),
                f"{root}/../{arena.canaries.public.parent.name}/secret",
            ),
            *(
                f"{root}/link",
                f"{root}/folder/secret",
                f"{root}/fifo",
                f"{root}",
                f"{root}/",
                f"{root}/.",
                f"{root}/..",
            ),
            *(
                f"{root}x/file",
                "/etc/passwd",
                "good",
                f"{root}/good\0",
                "/proc/self/environ",
                f"{root}/missing",
                "/dev/zero",
            ),
            f"/proc/self/root{arena.canaries.public}",
        ]
        for path in bad:
            with pytest.raises(BadHostPath, match="on this machine"):
                await arena.service.files.copy_in_from_host(session, "x", path, opened, hidden=False)
        await arena.service.files.copy_in_from_host(session, "in", f"{root}/good", opened, hidden=False)
        assert await arena.check("print(open('in').read())", session) == "fine\n"
        for path in (*bad[:3], f"{root}/folder/new", f"{root}", f"{root}/..", f"{root}/no/folder", "/etc/new", "new"):
            with pytest.raises(BadHostPath, match="on this machine"):
                await arena.service.files.copy_out_to_host(session, "out", path)
        for name in ("new", "good", "link", "dangling", "fifo"):
            _, written = await arena.service.files.copy_out_to_host(session, "out", f"{root}/{name}")
            assert written.path == f"{root}/{name}{'' if name == 'new' else '.from-code'}"
            assert Path(written.path).read_text() == "from inside"
        assert (root / "good").read_text() == "fine"
        assert (root / "link").is_symlink() and (root / "dangling").is_symlink() and (root / "fifo").is_fifo()
        assert not (root.parent / "not-there").exists()
        assert not Path("/etc/new").exists()
