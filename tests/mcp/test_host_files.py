"""Files of the user's machine, in folders that the operator opened for reading or also for writing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.types import TextContent

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from ..engines import host_folder
from .results import answer, call, refusal, text
from .serving import SERVE, launch, stop

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

WRITE = """
import os
os.makedirs("tables/.hidden")
for name in ("plot.svg", "tables/sums.csv", "tables/.hidden/x.txt"):
    open(name, "w").write("made by code")
"""


@dataclass(frozen=True, slots=True)
class Opened:
    """A client, a session with artifacts, and two folders that are open to the client."""

    client: Client
    session_id: str
    data: Path
    out: Path

    async def saved(self, save_to: str, *names: str) -> list[str]:
        """Where artifacts were saved."""
        found = await answer(self.client, "get_artifacts", session_id=self.session_id, names=[*names], save_to=save_to)
        saved: list[str] = found["saved"]
        return saved

    async def refused(self, save_to: str, *names: str, **more: object) -> str:
        """Why artifacts were not saved."""
        return await refusal(
            self.client, "get_artifacts", session_id=self.session_id, names=[*names], save_to=save_to, **more
        )


@pytest.fixture
async def opened(era: str, tmp_path: Path) -> AsyncIterator[Opened]:
    data, out = tmp_path / "data", tmp_path / "out"
    for folder in (data, out):
        folder.mkdir()
    profile = load_profile(over={"files": {"folders": [str(data), f"{out}:rw"]}})
    with anyio.fail_after(60):
        async with (
            open_service(profile) as service,
            Client(build_server(service, host_files=True), mode=era) as client,
        ):
            session_id = (await answer(client, "execute_code", code=WRITE))["session_id"]
            await answer(client, "copy_file", session_id=session_id, path="tables/.hidden/x.txt", direction="out")
            yield Opened(client, session_id, data, out)


async def test_the_tools_name_the_folders(opened: Opened) -> None:
    tools = {tool.name: tool for tool in (await opened.client.list_tools()).tools}
    host_path = tools["copy_file"].input_schema["properties"]["host_path"]["description"]
    save_to = tools["get_artifacts"].input_schema["properties"]["save_to"]["description"]
    assert host_path.endswith(f"below {opened.data}, {opened.out}; direction out: below {opened.out}")
    assert save_to.endswith(f", {opened.out} or below")
    annotations = tools["get_artifacts"].annotations
    assert annotations and annotations.destructive_hint and not annotations.read_only_hint
    running = tools["execute_code"].annotations
    assert running and running.destructive_hint


async def test_files_of_both_folders_can_be_copied_in_and_only_one_can_be_written(opened: Opened) -> None:
    (opened.data / "a.txt").write_text("from data")
    (opened.out / "b.txt").write_text("from out")
    for folder, name in ((opened.data, "a.txt"), (opened.out, "b.txt")):
        await answer(opened.client, "copy_file", session_id=opened.session_id, path=name, host_path=f"{folder}/{name}")
    read = await answer(
        opened.client, "execute_code", session_id=opened.session_id, code="open('a.txt').read() + open('b.txt').read()"
    )
    assert read["result"] == "'from datafrom out'"
    there = {"session_id": opened.session_id, "path": "b.txt", "direction": "out"}
    await answer(opened.client, "copy_file", host_path=f"{opened.out}/copy.txt", **there)
    assert (opened.out / "copy.txt").read_text() == "from out"
    said = await refusal(opened.client, "copy_file", host_path=f"{opened.data}/copy.txt", **there)
    assert said.startswith("host_path: ") and f"outside the folders that are open for writing: {opened.out}" in said
    assert [path.name for path in opened.data.iterdir()] == ["a.txt"]


async def test_artifacts_are_saved_under_their_names_or_the_name_that_the_path_ends_with(opened: Opened) -> None:
    out = str(opened.out)
    assert await opened.saved(out, "plot.svg", "tables/sums.csv") == [f"{out}/plot.svg", f"{out}/tables/sums.csv"]
    assert await opened.saved(f"{out}/plot.svg", "plot.svg") == [f"{out}/plot.svg"]
    assert await opened.saved(f"{out}/new/folder", "plot.svg") == [f"{out}/new/folder/plot.svg"]
    files = {str(path.relative_to(opened.out)): path.read_text() for path in opened.out.rglob("*") if path.is_file()}
    assert files == dict.fromkeys(("plot.svg", "tables/sums.csv", "new/folder/plot.svg"), "made by code")


async def test_saving_replaces_no_link_and_not_what_it_names(opened: Opened) -> None:
    (opened.data / "own.svg").write_text("own")
    (opened.out / "plot.svg").symlink_to(opened.data / "own.svg")
    (opened.out / "way").symlink_to(opened.data)
    assert await opened.saved(str(opened.out), "plot.svg") == [f"{opened.out}/plot.from-code.svg"]
    assert (opened.out / "plot.svg").is_symlink()
    assert "outside the folders" in await opened.refused(f"{opened.out}/way", "plot.svg")
    assert {path.name: path.read_text() for path in opened.data.iterdir()} == {"own.svg": "own"}


async def test_saving_replaces_no_file_of_the_users_and_says_where_the_new_ones_are(opened: Opened) -> None:
    out, again = opened.out, "with open('plot.svg', 'w') as file: file.write('made again')"
    (out / "tables").mkdir()
    (out / "tables/sums.csv").write_text("own")
    given = {"session_id": opened.session_id, "names": ["plot.svg", "tables/sums.csv"], "save_to": str(out)}
    for content in ("made by code", "made again"):
        result = await call(opened.client, "get_artifacts", **given)
        found = result.structured_content
        assert found and found["saved"] == [f"{out}/plot.svg", f"{out}/tables/sums.from-code.csv"]
        note = (
            f"note: {out}/tables/sums.csv is the user's and stays as it is; the new file is beside it, as "
            "sums.from-code.csv; compare both, and keep what is right"
        )
        assert found["text"] == note
        assert text(result).splitlines()[-3:] == [*(f"saved: {path}" for path in found["saved"]), note]
        # What this server has written is replaced.
        assert (out / "plot.svg").read_text() == content
        await answer(opened.client, "execute_code", session_id=opened.session_id, code=again)
    files = {path.name: path.read_text() for path in (out / "tables").iterdir()}
    assert files == {"sums.csv": "own", "sums.from-code.csv": "made by code"}
    (out / "plot.svg").write_text("changed by the user")
    assert await opened.saved(str(out), "plot.svg") == [f"{out}/plot.from-code.svg"]
    assert (out / "plot.svg").read_text() == "changed by the user"


async def test_what_was_saved_is_told_also_if_something_was_not(opened: Opened) -> None:
    out = opened.out
    (out / "tables").write_text("own")
    given = {"session_id": opened.session_id, "names": ["tables/sums.csv", "plot.svg"], "save_to": str(out)}
    result = await call(opened.client, "get_artifacts", **given)
    why = "cannot be written: Not a directory"
    failed = f"not saved: tables/sums.csv: {str(out / 'tables/sums.csv')[:60]!r}"
    assert not result.is_error
    assert text(result).splitlines()[-2] == f"saved: {out}/plot.svg"
    assert text(result).splitlines()[-1].startswith(failed[:40]) and text(result).endswith(why)
    assert result.structured_content and result.structured_content["saved"] == [f"{out}/plot.svg"]
    assert result.structured_content["text"] == text(result).splitlines()[-1]
    said = await opened.refused(str(out), "tables/sums.csv")
    assert said.startswith("save_to: ") and said.endswith(why)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"tables": "own", "plot.svg": "made by code"}


async def test_copying_out_replaces_no_file_of_the_users_and_says_where_the_new_one_is(opened: Opened) -> None:
    own = opened.out / "b.csv"
    own.write_text("own")
    given = {"session_id": opened.session_id, "path": "plot.svg", "direction": "out", "host_path": str(own)}
    result = await call(opened.client, "copy_file", **given)
    new = opened.out / "b.from-code.csv"
    assert text(result).splitlines() == [
        f"copied out: plot.svg (12B) to {new}",
        f"note: {own} is the user's and stays as it is; the new file is beside it, as b.from-code.csv; "
        "compare both, and keep what is right",
    ]
    assert result.structured_content and result.structured_content["host_path"] == str(new)
    assert (own.read_text(), new.read_text()) == ("own", "made by code")


async def test_secrets_are_not_copied_in_and_nothing_is_copied_into_repositories(opened: Opened) -> None:
    bare = opened.out / "own.git"
    for folder in (opened.out / ".git", bare, bare / "objects", bare / "refs"):
        folder.mkdir()
    for path in (opened.out / ".env", opened.out / ".git/config", bare / "config", bare / "HEAD"):
        path.write_text("ref: refs/heads/main" if path.name == "HEAD" else "password")
    there = {"session_id": opened.session_id, "path": "plot.svg"}
    for name, reason in (
        (".env", "is hidden, and code gets no hidden files, as there are often passwords in them; ask the user"),
        (".git/config", "is hidden, and code gets no hidden files"),
        ("own.git/config", "is a setting of a repository, and code gets none of these"),
    ):
        said = await refusal(opened.client, "copy_file", host_path=f"{opened.out}/{name}", **there)
        assert said.startswith("host_path: ") and reason in said
    for name, reason in (
        ("own.git/new", "is never written: it is in a repository's own folder; use another name or folder"),
        (
            "HEAD",
            "is never written: with a file of that name, its folder could become a repository; use another name or folder",
        ),
    ):
        said = await refusal(opened.client, "copy_file", host_path=f"{opened.out}/{name}", direction="out", **there)
        assert said.startswith("host_path: ") and said.endswith(reason)
    assert "repository's own folder" in await opened.refused(str(bare), "plot.svg")
    assert sorted(path.name for path in opened.out.rglob("*")) == [
        ".env",
        ".git",
        "HEAD",
        "config",
        "config",
        "objects",
        "own.git",
        "refs",
    ]


@pytest.mark.parametrize(
    ("place", "names", "reason"),
    [
        ("{data}", ["plot.svg"], "outside the folders that are open for writing: {out}"),
        ("/etc", ["plot.svg"], "outside the folders that are open for writing: {out}"),
        ("{out}/../data", ["plot.svg"], "outside the folders that are open for writing: {out}"),
        ("out", ["plot.svg"], "must be an absolute path"),
        ("{out}/.git/hooks", ["plot.svg"], "is never written: its name or a folder of it is hidden"),
        ("{out}", ["tables/.hidden/x.txt"], "is hidden"),
        ("{out}", ["none"], "unknown artifact 'none'"),
        ("{out}\0", ["plot.svg"], "must be an absolute path"),
    ],
)
async def test_other_places_are_refused_and_nothing_is_written(
    opened: Opened, place: str, names: list[str], reason: str
) -> None:
    said = await opened.refused(place.format(data=opened.data, out=opened.out), *names)
    assert reason.format(out=opened.out) in said
    assert not [*opened.out.iterdir()]
    assert not [*opened.data.iterdir()]


async def test_a_part_of_an_artifact_is_not_saved(opened: Opened) -> None:
    said = await opened.refused(str(opened.out), "plot.svg", offset=1)
    assert said == "save_to and a part of an artifact exclude each other; leave out offset and length"


async def test_code_sees_the_folders_and_what_it_changes_is_saved(opened: Opened) -> None:
    tools = {tool.name: tool for tool in (await opened.client.list_tools()).tools}
    seen = (
        f"Code reads the user's folders at /data/data ({opened.data}), /data/out ({opened.out}); changes "
        "below /data/out are saved when a run ends; deletions are not."
    )
    assert seen in (tools["execute_code"].description or "")
    prompt = (await opened.client.get_prompt("plot", {"what": "x"})).messages[0].content
    assert isinstance(prompt, TextContent) and seen in prompt.text
    (opened.out / "in.txt").write_text("3 4")
    code = "a, b = open('/data/out/in.txt').read().split()\nopen('/data/out/sum.txt', 'w').write(str(int(a) + int(b)))"
    done = await answer(opened.client, "execute_code", code=code)
    assert done["notes"] == [f"saved in {opened.out}: sum.txt"]
    assert (opened.out / "sum.txt").read_text() == "7"


async def test_clients_over_http_see_none_of_the_folders(era: str, tmp_path: Path) -> None:
    profile = tmp_path / "http.toml"
    warning = f"files.folders ({tmp_path}:rw): not opened, as clients over HTTP may be on other machines"
    with host_folder() as runtime, anyio.fail_after(60):
        profile.write_text(f'[files]\nfolders = ["{tmp_path}:rw"]\n[server]\nruntime = "{runtime}"\n')
        server = launch([*SERVE, "--port", "0", "--profile", str(profile)], warning=warning)
        try:
            async with server.connect(era) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert "/data" not in (tools["execute_code"].description or "")
                running = tools["execute_code"].annotations
                assert running and not running.destructive_hint
                done = await answer(client, "execute_code", code="import os; os.path.exists('/data')")
        finally:
            stop(server)
    assert done["result"] == "False"


@pytest.mark.parametrize(
    ("folders", "host_files", "reason"),
    [
        (
            [],
            True,
            "save_to: no folder on this machine is open for writing; ask the operator to open one (files.folders)",
        ),
        (["{data}"], True, "save_to: no folder on this machine is open for writing"),
        (["{data}:rw"], False, "save_to: only a server on stdio can save files on its machine; leave it out"),
    ],
)
async def test_without_an_open_folder_save_to_is_not_offered_and_refused(
    era: str, tmp_path: Path, folders: list[str], host_files: bool, reason: str
) -> None:
    profile = load_profile(over={"files": {"folders": [folder.format(data=tmp_path) for folder in folders]}})
    with anyio.fail_after(60):
        async with (
            open_service(profile) as service,
            Client(build_server(service, host_files=host_files), mode=era) as client,
        ):
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "get_artifacts"]
            assert "save_to" not in tool.input_schema["properties"]
            session_id = (await answer(client, "execute_code", code="open('x', 'w').write('x')"))["session_id"]
            said = await refusal(client, "get_artifacts", session_id=session_id, names=["x"], save_to=str(tmp_path))
    assert said.startswith(reason)
    assert not [*tmp_path.iterdir()]
