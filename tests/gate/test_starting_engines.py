"""An engine for tests that does not start is reported soon, with the last lines of its log."""

import socket
import sys
from pathlib import Path

import pytest

from tests.engines import daemon, kubernetes, starting
from tests.engines.daemon import Daemon, Unusable, last_words
from tests.engines.requirement import REQUIRE

SERVES = """
import http.server, socketserver, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def address_string(self): return "someone"
socketserver.UnixStreamServer(sys.argv[1], Answers).serve_forever()
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(daemon, "CACHE", tmp_path)
    monkeypatch.setattr(daemon, "RUNTIME", tmp_path)
    monkeypatch.setattr(kubernetes, "_LOG", tmp_path / "kubernetes.log")
    monkeypatch.setattr(kubernetes, "_NOTED", tmp_path / "kubeconfig")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def of(*command: str) -> Daemon:
    return Daemon("engine", command)


def test_an_engine_that_ends_at_once_is_reported_with_its_last_lines() -> None:
    with pytest.raises(Unusable, match=r"^sh ended at once; .*engine.log ends with\nfirst\nsecond$"):
        of("sh", "-c", "echo first; echo second >&2; exit 1").start()


def test_an_engine_with_an_empty_log_is_reported_too() -> None:
    with pytest.raises(Unusable, match=r"ends with\nnothing$"):
        of("false").start()


def test_an_engine_that_never_answers_is_ended_and_reported_with_its_last_lines() -> None:
    engine = of("sh", "-c", "echo it waits; exec sleep 1000")
    with pytest.raises(Unusable, match=r"did not answer within 1 s; .*\nit waits$"):
        engine.start(patience=1.0)
    assert engine.pid() is None


def test_an_engine_whose_port_is_taken_is_reported_with_its_own_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Unusable, match="Address already in use"):
            of(sys.executable, "-c", f"import socket; socket.create_server(('127.0.0.1', {port}))").start()


def test_an_engine_stops(places: Path) -> None:
    engine = of(sys.executable, "-c", SERVES, str(places / "engine.sock"))
    process = engine.start()
    assert process is not None and engine.healthy()
    assert engine.start() is None
    assert engine.stop()
    process.wait()
    assert not engine.stop()


def test_only_the_end_of_a_long_log_is_shown(places: Path) -> None:
    log = places / "log"
    log.write_text("".join(f"{number}\n" for number in range(100)))
    assert last_words(log).split() == [str(number) for number in range(90, 100)]


def cluster(place: Path, up: str) -> None:
    for name, text in {"up": up, "down": "touch ended"}.items():
        (place / name).write_text(f"#!/bin/sh\ncd {place}\n{text}\n")
        (place / name).chmod(0o755)


def test_a_cluster_is_started_with_its_images_and_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "its"
    cluster(tmp_path, f'echo "given $*"; echo export KUBECONFIG={file}')
    monkeypatch.setenv(kubernetes.PLACE, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        file.write_text(f"server: https://127.0.0.1:{server.getsockname()[1]}\n")
        kubernetes.start([Path("/a.tar"), Path("/b.tar")])
        assert kubernetes.kubeconfig() == str(file)
    assert "given /a.tar /b.tar" in (tmp_path / "kubernetes.log").read_text()
    assert kubernetes.stop()
    assert (tmp_path / "ended").exists()
    assert kubernetes.kubeconfig() is None
    assert not kubernetes.stop()


def test_a_cluster_that_ended_by_itself_is_not_found_but_stopped_by_the_current_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "its"
    file.write_text("server: https://127.0.0.1:1\n")
    (tmp_path / "kubeconfig").write_text(f"{file}\n/of/a/checkout/that/is/gone")
    cluster(tmp_path, "")
    monkeypatch.setenv(kubernetes.PLACE, str(tmp_path))
    assert kubernetes.kubeconfig() is None
    assert kubernetes.stop()
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(("up", "ending"), [("echo no room; exit 3", "ended with 3"), ("echo nothing", "ended with 0")])
def test_a_cluster_that_does_not_start_is_reported_with_the_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: str, ending: str
) -> None:
    cluster(tmp_path, up)
    monkeypatch.setenv(kubernetes.PLACE, str(tmp_path))
    with pytest.raises(Unusable, match=rf"up {ending}; .*kubernetes.log ends with\nno"):
        kubernetes.start([])
    assert kubernetes.kubeconfig() is None


def test_without_a_program_that_starts_a_cluster_the_error_names_the_variables_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(kubernetes.PLACE, raising=False)
    with pytest.raises(Unusable, match=f"KUBECONFIG .* {kubernetes.PLACE}"):
        kubernetes.start([])


def test_a_cluster_that_kubeconfig_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/mine")
    monkeypatch.setenv(kubernetes.PLACE, "/nowhere")
    kubernetes.start([])
    assert kubernetes.kubeconfig() == "/mine"
    assert not kubernetes.stop()


def test_without_permission_to_start_engines_each_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starting, "_excluded", lambda: "only root may")
    monkeypatch.setenv(REQUIRE, "embedded kubernetes")
    assert starting.up() == 1
    assert "kubernetes: skipped: only root may\n" in capsys.readouterr().err
    assert starting.up("podman") == 0
    monkeypatch.setenv("KUBECONFIG", "/of/a/cluster")
    assert starting.up() == 0
