"""The handlers' images, on real engines, restricted like sandboxes: each has its toolchain and all the server needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import docker
import pytest
from docker.models.containers import Container

from llm_sandbox_mcp.host.folders import HANDLERS
from tests.engines import absent, docker_host, podman_host
from tests.growth import kept

ENGINES = {"docker": docker_host, "podman": podman_host}
LANGUAGES = sorted(path.name for path in HANDLERS.iterdir() if path.is_dir())


def compiled(file: str, source: str, command: str) -> list[str]:
    return ["sh", "-c", f'printf %s "$0" >{file} && {command}', source]


PROGRAMS = {
    "bash": ["bash", "-c", "printf '%s\\n' hello | awk '{ print $1 }'"],
    "cpp": compiled("a.cpp", '#include <iostream>\nint main() { std::cout << "hello\\n"; }', "g++ -o a a.cpp && ./a"),
    "go": compiled(
        "a.go", 'package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }', "go build -o a a.go && ./a"
    ),
    "java": compiled(
        "A.java",
        'class A { public static void main(String[] a) { System.out.println("hello"); } }',
        "javac A.java && java A",
    ),
    "javascript": ["node", "-e", "console.log('hello')"],
    "python": ["/usr/local/bin/python", "-c", "import matplotlib.pyplot, numpy, pandas; print('hello')"],
    "r": [
        "Rscript",
        "-e",
        "suppressMessages({ library(ggplot2); library(plotly) }); png('a.png'); plot(1); invisible(dev.off()); "
        "stopifnot(file.size('a.png') > 0); cat('hello\\n')",
    ],
    "ruby": ["ruby", "-e", "require 'csv'; puts 'hello'"],
}
"""A program in each language that prints a line."""

MANAGERS = {"javascript": ["npm"], "ruby": ["gem"], "cpp": ["dpkg-deb", "/usr/bin/python3"]}
"""The programs that install libraries in a session, if they are separate from the language's own program."""

WRITABLE = ("/sandbox", "/home", "/tmp")


class Engine(NamedTuple):
    """An engine that works on this machine."""

    name: str
    client: docker.DockerClient


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    host = ENGINES[request.param]()
    if host is None:
        absent(request.param, "python -m tests.engines up did not start it")
    client = docker.DockerClient(base_url=host, version="1.41", timeout=60)
    with kept(request.param):
        yield Engine(request.param, client)
    client.close()


@contextmanager
def restricted(engine: Engine, language: str, command: list[str]) -> Iterator[Container]:
    """A running container, made as the server makes it; it is always removed."""
    # Each engine has its own option to give a mount to the sandbox's user, and refuses the option of the other engine.
    owner = "uid=1000,gid=1000" if engine.name == "docker" else "U"
    container = engine.client.containers.create(
        f"llm-sandbox-mcp-{language}",
        ["timeout", "60", *command],
        cap_drop=["ALL"],
        init=True,
        mem_limit="1g",
        network_mode="none",
        pids_limit=256,
        read_only=True,
        security_opt=["no-new-privileges"],
        tmpfs=dict.fromkeys(WRITABLE, f"rw,exec,size=256m,mode=0700,{owner}"),
    )
    try:
        container.start()
        yield container
    finally:
        container.remove(force=True)


def output(engine: Engine, language: str, command: list[str]) -> str:
    """The output of the command; a command that fails fails the test."""
    with restricted(engine, language, command) as container:
        code = container.wait(timeout=70)["StatusCode"]
        printed = str(container.logs(), "utf-8")
    assert code == 0, printed
    return printed


def test_every_language_has_a_dockerfile_and_a_program() -> None:
    assert sorted(PROGRAMS) == LANGUAGES
    assert [name for name in LANGUAGES if not (HANDLERS / name / "Dockerfile").is_file()] == []


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_restricted_container_runs_a_program(engine: Engine, language: str) -> None:
    assert output(engine, language, PROGRAMS[language]) == "hello\n"


@pytest.mark.parametrize("language", PROGRAMS)
def test_code_runs_as_an_ordinary_user_on_a_read_only_system(engine: Engine, language: str) -> None:
    script = """
        id -u; id -g; id -un; pwd; echo ~; echo "$LANG"
        for folder in "$@"; do touch "$folder/x" && rm "$folder/x" || echo "cannot write $folder"; done
        for folder in / /etc /usr /opt/handlers; do touch "$folder/x" 2>/dev/null && echo "can write $folder"; done
        true
    """
    printed = output(engine, language, ["sh", "-c", script, "sh", *WRITABLE])
    assert printed.split() == ["1000", "1000", "sandbox", "/sandbox", "/home", "C.UTF-8"]


@pytest.mark.parametrize("language", PROGRAMS)
def test_an_image_has_what_the_server_needs_and_nothing_left_over(engine: Engine, language: str) -> None:
    script = """
        for program in sh tar find perl "$@"; do command -v "$program" >/dev/null || echo "no $program"; done
        find /opt/handlers -mindepth 1 || exit
        ls /var/lib/apt/lists/*_Packages* /var/cache/apt/archives/*.deb 2>/dev/null || true
    """
    assert output(engine, language, ["sh", "-c", script, "sh", *MANAGERS.get(language, [])]) == ""
