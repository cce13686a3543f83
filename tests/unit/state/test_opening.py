"""What a profile can say of the place of saved sessions, and of their key."""

import sys
from pathlib import Path

import pytest

from llm_sandbox_mcp import Profile
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.state.opening import kept_sessions, saved_sessions
from llm_sandbox_mcp.testing.profiles import changed

KEY = "0123456789abcdef" * 4


def profile(**sessions: object) -> Profile:
    return changed(load_profile(), sessions=sessions)


def place(profile: Profile, folder: Path) -> str:
    return saved_sessions(profile, folder).place


def test_sessions_are_kept_where_the_profile_says_or_in_the_folder_of_the_machine(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    assert place(profile(), tmp_path) == str(tmp_path)
    assert place(profile(store="/srv/sessions"), tmp_path) == "/srv/sessions"
    assert place(profile(store="s3://bucket/pre/fix"), tmp_path) == "s3://bucket/pre/fix"
    assert place(profile(store="s3://bucket", key_file=str(key)), tmp_path) == "s3://bucket, encrypted"


@pytest.mark.parametrize(
    "store",
    [
        "s3://",
        "s3:///prefix",
        "s3://bucket/../other",
        "s3://bucket//prefix",
        "s3://bucket/a b",
        "ftp://bucket",
        "file:///srv",
    ],
)
def test_another_place_is_refused_when_the_profile_is_read(store: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[sessions]\nstore = "{store}"\n')
    with pytest.raises(ProfileError, match="must be a folder, or an object store such as s3://BUCKET/PREFIX"):
        load_profile(str(file))


def test_a_slash_at_the_end_of_a_place_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[sessions]\nstore = "s3://bucket/prefix/"\n')
    assert load_profile(str(file)).sessions.store == "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read"),
        ("", "is empty"),
        (" \n", "is empty"),
        (KEY[:-2], "not 32 bytes"),
        (f"{KEY}\n{KEY}00\n", "not 32 bytes"),
        ("x" * 64, "a line that is no key"),
        ("\xe9" * 64, "a line that is no key"),
    ],
)
def test_a_key_file_that_has_no_key_is_refused_and_not_shown(content: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content, encoding="latin-1")
    with pytest.raises(ProfileError, match=reason) as refused:
        kept_sessions(profile(key_file=str(file)), tmp_path)
    assert refused.value.key == "sessions.key_file"
    assert "openssl rand -hex 32" in refused.value.step
    assert not content or not content.strip() or content.strip()[:8] not in str(refused.value)


def test_a_key_in_the_place_of_its_file_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[sessions]\nkey_file = "{KEY}"\n')
    with pytest.raises(ProfileError, match=r"sessions\.key_file: must be the path of a file") as refused:
        load_profile(str(file))
    assert KEY[:8] not in str(refused.value)


def test_an_object_store_without_its_library_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "llm_sandbox_mcp.state.objects", raising=False)
    with pytest.raises(ProfileError, match="s3://bucket needs obstore") as refused:
        saved_sessions(profile(store="s3://bucket"), tmp_path)
    assert refused.value.step == "pip install 'llm-sandbox-mcp[object-store]'"


def test_a_place_or_a_key_that_cannot_be_used_is_named_with_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key = tmp_path / "mine.toml", tmp_path / "key"
    file.write_text(f'[sessions]\nkey_file = "{key}"\n')
    with pytest.raises(ProfileError) as refused:
        saved_sessions(load_profile(str(file)), tmp_path)
    assert str(refused.value).startswith(f"{file}: sessions.key_file: {key} cannot be read: ")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    file.write_text('[sessions]\nstore = "s3://bucket"\n')
    with pytest.raises(ProfileError) as refused:
        kept_sessions(load_profile(str(file)), tmp_path)
    assert str(refused.value).startswith(f"{file}: sessions.store: s3://bucket cannot be used: ")
    assert refused.value.key == "sessions.store"
