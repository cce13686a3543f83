"""The `/etc` of sandboxes: complete, readable by every user, and with nothing from the host except the listed files."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded.etc import write_etc

SECRETS = (
    "shadow",
    "gshadow",
    "ssh/ssh_host_ed25519_key",
    "machine-id",
    "fstab",
    "sudoers",
    "ssl/private/key.pem",
    "chromium.d/apikeys",
)


def put(root: Path, name: str, text: str = "x", mode: int = 0o644) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "host"
    for secret in SECRETS:
        put(root, secret, "canary")
    return root


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "etc"


def test_an_empty_host_gives_only_the_generated_files(source: Path, target: Path) -> None:
    write_etc(target, source)
    assert names(target) == {"passwd", "group", "gitconfig", "hostname", "hosts", "nsswitch.conf", "resolv.conf"}
    assert "sandbox:x:1000:1000:sandbox:/home:/bin/sh" in (target / "passwd").read_text().splitlines()
    hosts = [line.split() for line in (target / "hosts").read_text().splitlines()]
    assert {"localhost", "sandbox"} <= set(hosts[0]) & set(hosts[1])
    assert [line[0] for line in hosts] == ["127.0.0.1", "::1"]
    assert "hosts: files\n" in (target / "nsswitch.conf").read_text()
    assert "dns" not in (target / "nsswitch.conf").read_text()
    assert (target / "resolv.conf").read_text() == ""


def test_every_user_can_read_it_whatever_the_umask_and_the_modes_on_the_host(source: Path, target: Path) -> None:
    put(source, "services", mode=0o604)
    put(source, "fonts/conf.avail/10.conf", mode=0o777)
    (source / "fonts").chmod(0o700)
    before = os.umask(0o777)
    try:
        write_etc(target, source)
    finally:
        os.umask(before)
    for path in (target, *target.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_a_file_that_is_not_readable_by_every_user_of_the_host_is_left_out(source: Path, target: Path) -> None:
    put(source, "services", mode=0o640)
    put(source, "R/Renviron.site", "TOKEN=canary", mode=0o600)
    put(source, "R/Renviron")
    (source / "protocols").symlink_to("shadow")
    (source / "shadow").chmod(0o640)
    write_etc(target, source)
    assert names(target) & {"services", "protocols", "R/Renviron.site", "R/Renviron"} == {"R/Renviron"}


def test_an_entry_that_is_not_a_file_is_left_out(source: Path, target: Path) -> None:
    os.mkfifo(source / "services")
    (source / "fonts").mkdir()
    os.mkfifo(source / "fonts/pipe")
    (source / "protocols").mkdir()
    write_etc(target, source)
    assert not names(target) & {"services", "fonts/pipe", "protocols"}


@pytest.mark.parametrize("place", ["ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt", "ssl/cert.pem"])
def test_certificates_are_where_openssl_looks_wherever_the_host_has_them(
    source: Path, target: Path, place: str
) -> None:
    bundle = put(source, "ca-trust/bundle", "certificates")
    (source / place).parent.mkdir(parents=True, exist_ok=True)
    (source / place).symlink_to(bundle)
    write_etc(target, source)
    shutil.rmtree(source)
    for name in ("ssl/certs/ca-certificates.crt", "ssl/cert.pem", "pki/tls/cert.pem", "pki/tls/certs/ca-bundle.crt"):
        assert (target / name).read_text() == "certificates"
        if (target / name).is_symlink():
            assert not os.readlink(target / name).startswith("/")


def test_a_listed_name_that_is_a_link_is_copied_as_a_file(source: Path, target: Path, tmp_path: Path) -> None:
    (source / "localtime").symlink_to(put(tmp_path, "zone", "TZif"))
    (source / "os-release").symlink_to("nowhere")
    write_etc(target, source)
    assert (target / "localtime").read_text() == "TZif"
    assert not (target / "localtime").is_symlink()
    assert "os-release" not in names(target)


def test_links_inside_a_tree_stay_only_if_the_sandbox_has_their_target(source: Path, target: Path) -> None:
    put(source, "fonts/conf.avail/10.conf")
    links = {
        "alternatives/awk": "/usr/bin/mawk",
        "alternatives/gone": "/usr/bin/not-there",
        "alternatives/local": "/opt/secret-product/bin/x",
        "alternatives/home": "/home/someone/bin/x",
        "alternatives/up": "../shadow",
        "alternatives/trick": "/usr/../home/someone/x",
        "alternatives/awk.1.gz": "/usr/share/man/man1/mawk.1.gz",
        "fonts/conf.d/10.conf": "../conf.avail/10.conf",
        "fonts/conf.d/20.conf": "/usr/share/fontconfig/conf.avail/20.conf",
    }
    for name, leads_to in links.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).symlink_to(leads_to)
    write_etc(target, source)
    copied = {name for name in links if (target / name).is_symlink()}
    assert copied == {"alternatives/awk", "alternatives/gone", "fonts/conf.d/10.conf", "fonts/conf.d/20.conf"}
    assert all(os.readlink(target / name) == links[name] for name in copied)


def test_nothing_but_the_listed_names_comes_from_the_host(source: Path, target: Path) -> None:
    write_etc(target, source)
    assert not names(target) & set(SECRETS)
    for path in target.rglob("*"):
        assert path.is_dir() or "canary" not in path.read_text()


def test_of_the_settings_of_chromium_only_its_flags_are_copied(source: Path, target: Path) -> None:
    put(source, "chromium.d/default-flags")
    write_etc(target, source)
    assert {name for name in names(target) if name.startswith("chromium")} == {"chromium.d/default-flags"}


def test_a_directory_that_is_in_use_is_refused(source: Path, target: Path) -> None:
    write_etc(target, source)
    with pytest.raises(FileExistsError):
        write_etc(target, source)


def test_a_planted_link_is_not_written_through(source: Path, target: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside", "kept")
    target.mkdir()
    (target / "hosts").symlink_to(outside)
    with pytest.raises(FileExistsError):
        write_etc(target, source)
    assert outside.read_text() == "kept"


def test_no_account_and_no_key_of_the_real_host_is_copied(target: Path) -> None:
    write_etc(target)
    assert {path.name for path in target.iterdir()} <= {
        *(
            "passwd",
            "group",
            "gitconfig",
            "hostname",
            "hosts",
            "nsswitch.conf",
            "resolv.conf",
            "ld.so.cache",
            "ld.so.conf",
        ),
        *(
            "ssl",
            "ld.so.conf.d",
            "localtime",
            "timezone",
            "os-release",
            "mime.types",
            "protocols",
            "services",
            "pki",
            "R",
        ),
        *("alternatives", "fonts", "chromium.d"),
        *(path.name for path in Path("/etc").glob("java-*-openjdk")),
    }
    assert not (target / "ssl/private").exists()
    for path in target.rglob("*"):
        if not path.is_symlink():
            assert path.stat().st_mode & stat.S_IROTH
