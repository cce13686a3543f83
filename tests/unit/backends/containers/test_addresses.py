"""Addresses of engines: each has one form, and a server with TLS is checked unless somebody says otherwise."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.containers.addresses import Address, Certificates, address, first_there, read_settings
from llm_sandbox_mcp.base.errors import EngineUnavailable


@pytest.mark.parametrize(
    ("given", "plain", "with_tls"),
    [
        ("tcp://10.0.0.5", "tcp://10.0.0.5:2375", "tcp://10.0.0.5:2376"),
        ("10.0.0.5", "tcp://10.0.0.5:2375", "tcp://10.0.0.5:2376"),
        ("http://10.0.0.5:1", "tcp://10.0.0.5:1", "tcp://10.0.0.5:1"),
        ("https://[::1]:443", "tcp://[::1]:443", "tcp://[::1]:443"),
    ],
)
def test_an_address_has_the_usual_port_unless_it_names_one(given: str, plain: str, with_tls: str) -> None:
    certificates = Certificates("ca")
    assert address("docker", given, None) == Address(plain)
    assert address("docker", given, certificates) == Address(with_tls, certificates)


@pytest.mark.parametrize("given", ["unix:///run/x.sock", "http+unix:///run/x.sock"])
def test_a_socket_of_this_machine_needs_no_certificates(given: str) -> None:
    assert address("docker", given, Certificates("ca")) == Address("unix:///run/x.sock")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("tcp://10.0.0.5:x", "docker's address tcp://10.0.0.5:x is not valid: "),
        ("ssh://host", "docker's address ssh://host uses ssh, which is not supported; forward its socket"),
        ("tcp://", "docker's address tcp:// is of an unknown kind; use unix:///run/x.sock or tcp://host:port"),
        ("npipe:////./pipe/docker", "docker's address npipe:////./pipe/docker is of an unknown kind"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_next_step(given: str, why: str) -> None:
    with pytest.raises(EngineUnavailable) as refused:
        address("docker", given, None)
    assert str(refused.value).startswith(why)


def test_a_server_is_checked_unless_somebody_says_otherwise() -> None:
    assert Certificates().verify
    assert Certificates("ca", "cert", "key").verify


def test_settings_that_are_not_there_are_empty_and_unreadable_ones_are_told(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "none.json") == {}
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "b.conf").write_text("b = 2")
    assert read_settings(tmp_path / "a.json") == {"a": 1}
    assert read_settings(tmp_path / "list.json") == {}
    assert read_settings(tmp_path / "b.conf") == {"b": 2}
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(EngineUnavailable, match=r"bad.json cannot be read: .*; fix the file, or name the engine's"):
        read_settings(tmp_path / "bad.json")


def test_the_first_path_that_is_there_is_used_or_else_the_first(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "c").touch()
    names = [str(tmp_path / name) for name in "abc"]
    assert first_there(*names) == names[1]
    assert first_there(names[0], "/nowhere") == names[0]
