"""Fresh sandboxes beside those of others: how soon the first result comes, in turn with ours and with bare Python.

Each of the others is installed in an environment of its own, with pandas; one that does not install is left out.
"""

import json
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from llm_sandbox_mcp.testing.profiles import host_folder

from ..environments import PROJECT, cached
from .fresh import PANDAS, PRINT, PYTHON, Wire, bare, begin, served, timed
from .speed import row

ROUNDS = 10
CALLS = 10
"""Runs in each live session in a round."""
PRINTED = {PRINT: "1", PANDAS: ""}

# A program reads what it shall do and with what code, and answers with the seconds until the result, and what was
# printed. What ends a sandbox comes after the result and is not measured; the answer waits for it, so that it does not
# disturb the next one.
_ANSWERS = """
import json, sys
for line in sys.stdin:
    what, code = json.loads(line)
    try:
        answer = globals()[what](code)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""

# The folders of its quick start, and the environment. One object for all runs, as it says: each run is a new process.
_SANDLOCK = """
import sys, time
from sandlock import Sandbox
READABLE = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev", sys.prefix]
sandbox = Sandbox(fs_readable=READABLE, fs_writable=["/tmp"])

def fresh(code):
    start = time.perf_counter()
    result = sandbox.run([sys.executable, "-c", code], timeout=60)
    assert result.success, result.stderr
    return time.perf_counter() - start, result.stdout.decode()
"""

# Its fastest way, which makes the code a fork of the program that asks, and shows it all that the program has in memory.
# The documented way to read what a clone prints starts one more sandbox, which takes longer than this pipe.
_CLONES = """
import contextlib, io, os
import numpy, pandas

def fresh(code):
    reader, writer = os.pipe()

    def work(number):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        os.write(writer, b"done " + printed.getvalue().encode())

    start = time.perf_counter()
    clone = Sandbox(fs_readable=READABLE, fs_writable=["/tmp"], init_fn=lambda: None, work_fn=work).fork(1)
    os.close(writer)
    word, _, printed = os.read(reader, 4096).decode().partition(" ")
    seconds = time.perf_counter() - start
    assert word == "done", "the clone has failed"
    os.read(reader, 1)  # until it has ended
    os.close(reader)
    return seconds, printed
"""

# Sockets of Unix are faster than TCP here. `wait_for_ready` would wait 0.2 s for messages that do not come; the kernel's
# welcome says as well that nothing is lost any more.
_KERNEL = """
import atexit, subprocess, time
from jupyter_client.manager import KernelManager

def opened():
    manager = KernelManager(transport="ipc")
    manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels(stdin=False, hb=False)
    while client.get_iopub_msg(timeout=60)["msg_type"] != "iopub_welcome":
        pass
    return manager, client

def close(manager, client):
    client.stop_channels()
    manager.shutdown_kernel(now=True)

def cell(client, code):
    messages = []
    reply = client.execute_interactive(code, allow_stdin=False, timeout=60, output_hook=messages.append)
    assert reply["content"]["status"] == "ok", reply
    return "".join(message["content"]["text"] for message in messages if message["msg_type"] == "stream")

def fresh(code):
    start = time.perf_counter()
    manager, client = opened()
    printed = cell(client, code)
    seconds = time.perf_counter() - start
    close(manager, client)
    return seconds, printed

kept = []

def live(code):
    if not kept:
        kept.append(opened())
        atexit.register(close, *kept[0])
        cell(kept[0][1], "x = 0")
    start = time.perf_counter()
    printed = cell(kept[0][1], code)
    return time.perf_counter() - start, printed
"""

# Its set-up, which makes an environment in each session, is skipped: it would take most of the time.
_LLM_SANDBOX = """
import sys, time
from llm_sandbox import SandboxSession
from llm_sandbox.local.config import DEFAULT_READ_ONLY_PATHS, LocalSandboxConfig
config = LocalSandboxConfig(python_executable=sys.executable, read_only_paths=(*DEFAULT_READ_ONLY_PATHS, sys.prefix))

def fresh(code):
    start = time.perf_counter()
    with SandboxSession(
        lang="python", backend="bubblewrap", skip_environment_setup=True, sandbox_config=config
    ) as session:
        result = session.run(code)
        seconds = time.perf_counter() - start
    assert result.exit_code == 0, result.stderr
    return seconds, result.stdout
"""


class Broken(Exception):
    """What a rival said instead of a result."""


@dataclass(frozen=True)
class Contender:
    """Somebody who can run code in a fresh sandbox, and perhaps in a live one."""

    name: str
    fresh: Callable[[str], float]
    live: Callable[[], float] | None = None


def environment(name: str, *packages: str) -> Path:
    """A folder with programs that have the packages, and pandas; without it, `pytest.skip` says why.

    Of the same interpreter as bare Python and our own sandboxes.
    """
    wanted = [*packages, "numpy", "pandas"]
    # Sandboxes cannot write bytecode into it.
    install = [find_uv_bin(), "pip", "install", "--quiet", "--compile-bytecode", "--python", "bin/python", *wanted]
    make = [find_uv_bin(), "venv", "--quiet", "--relocatable", "--python", PYTHON, "."]
    return cached(f"rival-{name}", [*wanted, PYTHON], make, install) / "bin"


@contextmanager
def started(argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its standard input does."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def asked(process: subprocess.Popen[bytes], what: str, code: str) -> float:
    """Seconds to the result of code, as one of the programs above measures them."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps([what, code]).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise Broken("its program does not start") from None
    answer: Any = json.loads(process.stdout.readline() or '"its program has ended"')
    if isinstance(answer, str):
        raise Broken(answer)
    seconds, printed = answer
    check(code, printed)
    return float(seconds)


def check(code: str, printed: str) -> None:
    """Raises `Broken` if something else was printed than the code prints."""
    if printed.strip() != PRINTED.get(code, ""):
        raise Broken(printed.strip().splitlines()[-1] if printed.strip() else "nothing was printed")


def over_mcp(wire: Wire, code: str) -> float:
    """Seconds for a call of Sandlock's own server, which answers in a new sandbox each time."""
    answers = list[dict[str, Any]]()

    def call() -> None:
        wire.request("tools/call", {"name": "python", "arguments": {"code": code}})
        answers.append(wire.receive())

    seconds = timed(call)
    check(code, answers[0]["result"]["content"][0]["text"])
    return seconds


def sandlock(stack: ExitStack) -> Iterator[Contender]:
    """Sandlock, in three ways; none of them keeps anything between two runs."""
    # Its server takes any `mcp`, but does not start with the second version.
    programs = environment("sandlock", "sandlock[mcp]>=0.9,<0.10", "mcp<2")
    for name, program in (("Sandlock, run", _SANDLOCK), ("Sandlock, fork with pandas", _SANDLOCK + _CLONES)):
        process = stack.enter_context(started([str(programs / "python"), "-c", program + _ANSWERS]))
        yield Contender(name, partial(asked, process, "fresh"))
    workspace = stack.enter_context(host_folder())
    process = stack.enter_context(started([str(programs / "sandlock-mcp"), "--workspace", str(workspace)]))
    try:
        wire = Wire(process)
    except (OSError, ValueError):  # no lines of JSON
        raise Broken("Sandlock's MCP server does not start here") from None
    yield Contender("Sandlock, MCP server", partial(over_mcp, wire))


def ipykernel(stack: ExitStack) -> Iterator[Contender]:
    """A kernel of Jupyter, which is no sandbox."""
    programs = environment("ipykernel", "ipykernel>=7.4,<8", "jupyter_client>=8.10,<9")
    process = stack.enter_context(started([str(programs / "python"), "-c", _KERNEL + _ANSWERS]))
    yield Contender(
        "ipykernel, no sandbox", partial(asked, process, "fresh"), partial(asked, process, "live", "x += 1")
    )


def llm_sandbox(stack: ExitStack) -> Iterator[Contender]:
    """LLM Sandbox on bubblewrap, where a session keeps files but no variables."""
    packages = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["rival"]
    programs = environment("llm-sandbox", *packages)
    process = stack.enter_context(started([str(programs / "python"), "-c", _LLM_SANDBOX + _ANSWERS]))
    yield Contender("LLM Sandbox, bubblewrap", partial(asked, process, "fresh"))


def ours(wire: Wire) -> Contender:
    """This server over MCP on stdio, on bubblewrap."""
    begin(wire)
    session = wire.run("x = 0")["session_id"]

    def fresh(code: str) -> float:
        wire.stocked(1)
        return wire.first(code)

    return Contender("ours, over MCP", fresh, lambda: timed(lambda: wire.run("x += 1", session_id=session)))


def usable(stack: ExitStack) -> Iterator[Contender]:
    """The rivals that work here, after everything was done once; for each of the others, a line says why not."""
    for rival in (sandlock, ipykernel, llm_sandbox):
        try:
            for contender in rival(stack):
                if tried(contender):
                    yield contender
        except (pytest.skip.Exception, Broken) as reason:
            print(reason)


def tried(contender: Contender) -> bool:
    """Whether the contender works here, which a line denies if not."""
    try:
        for code in PRINTED:
            contender.fresh(code)
        if contender.live:
            contender.live()
    except Broken as reason:
        print(f"{contender.name} does not work here: {reason}")
        return False
    return True


def compare(title: str, contenders: Sequence[Contender], act: Callable[[Contender], list[float]]) -> None:
    """Prints a line for each, measured in turn, and with bare Python before each."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    floor = list[float]()
    for _ in range(ROUNDS):
        for contender in contenders:
            floor.append(bare())
            seconds[contender.name].extend(act(contender))
    for name, taken in seconds.items():
        row(f"{title}: {name}", taken, floor)
    row(f"{title}: python3 -c pass", floor)


def main() -> None:
    """Measures everything and prints the table; a ratio is to `python3 -c pass`."""
    with ExitStack() as stack:
        settings = Path(stack.enter_context(host_folder())) / "profile.toml"
        settings.write_text("[sessions]\nstarts_per_second = 1000.0\n")
        contenders = [*usable(stack), ours(stack.enter_context(served(str(settings))))]
        print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}")
        compare("print(1)", contenders, lambda contender: [contender.fresh(PRINT)])
        compare("pandas", contenders, lambda contender: [contender.fresh(PANDAS)])
        stateful = [contender for contender in contenders if contender.live]
        compare("x += 1", stateful, lambda contender: [contender.live() for _ in range(CALLS) if contender.live])


if __name__ == "__main__":
    main()
