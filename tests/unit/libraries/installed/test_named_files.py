"""The files that pages of indexes name take a limited memory, and no installation takes it from the others."""

import pytest

from llm_sandbox_mcp.libraries.installed import named_files
from llm_sandbox_mcp.libraries.installed.named_files import NamedFiles, Room


def fill(files: NamedFiles, number: int) -> list[str]:
    return [files.add(f"http://files.example/{one}") for one in range(number)]


def kept(files: NamedFiles, tokens: list[str]) -> int:
    return sum(files.find(token) is not None for token in tokens)


def test_a_file_is_found_by_its_token_only() -> None:
    with Room().open() as files:
        token = files.add("http://files.example/é")
        assert files.add("http://files.example/é") == token
        assert files.find(token) == "http://files.example/é"
        assert files.find("0" * 32) is None
    with Room().open() as others:
        assert others.add("http://files.example/é") != token


def test_the_oldest_files_of_an_installation_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "EACH", 10_000)
    with Room().open() as files:
        tokens = fill(files, 1000)
        assert files.size <= 10_000
        assert 10 < kept(files, tokens) < 100
        assert files.find(tokens[-1]) and not files.find(tokens[0])


def test_the_bytes_of_addresses_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "EACH", 10_000)
    with Room().open() as files:
        tokens = [files.add(f"http://files.example/{one}" + "x" * 4000) for one in range(1000)]
        assert kept(files, tokens) == 2


def test_an_installation_that_names_most_forgets_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "ALL", 10_000)
    room = Room()
    with room.open() as small, room.open() as great:
        own = fill(small, 10)
        fill(great, 1000)
        more = fill(small, 12)[10:]
        assert room.taken <= 10_000
        assert kept(small, own + more) == 12
    assert room.taken == 0
    with room.open() as next_one:
        assert kept(next_one, fill(next_one, 20)) == 20
