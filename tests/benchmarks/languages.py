"""How fast each language is: runs on a live interpreter; for compiled languages the second run and the bare program.

Also measures what the capture of figures costs a run that draws none, and how fast a library is installed that another
session has installed before.
"""

import time

import anyio

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.languages.languages import Language
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session, session_of
from llm_sandbox_mcp.wiring import open_service
from tests.benchmarks.speed import row

ROUNDS = 100
STATEMENTS = {
    "bash": "x=$((x+1))",
    "javascript": "x = (globalThis.x ?? 0) + 1",
    "python": "x = globals().get('x', 0) + 1",
    "r": "x <- 1",
    "ruby": "x = 1",
}
PROMISES = {"r": "<= 6 ms"}
PROGRAMS = {
    "cpp": '#include <iostream>\nint main() { std::cout << "hello\\n"; }',
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
    "java": 'System.out.println("hello");',
}

CAPTURE_ROUNDS = 500
NO_CAPTURE = {
    "python": {"SANDBOX_FIGURES": "/nowhere", "MPLBACKEND": "agg"},
    "r": {"SANDBOX_FIGURES": "/nowhere"},
}
"""Environment variables in the profile that turn off the capture of figures for a language."""
EARLIER = {
    "python": {
        "": "1",
        "matplotlib": "import matplotlib.pyplot as plt",
        "10 figures before": (
            "import matplotlib.pyplot as plt\nfor n in range(10):\n    plt.plot([n])\n    plt.show()\n    plt.close()"
        ),
    },
    "r": {
        "": "1",
        "ggplot2": "library(ggplot2)",
        "10 figures before": "try(for (n in 1:10) plot(n), silent = TRUE)\ninvisible(graphics.off())",
    },
}
"""Code that the session has run before, by the name of the case."""

LIBRARIES = {
    "python": ("numpy==2.2.6", "< 1 s"),
    "javascript": ("lodash@4.17.21", ""),
    "cpp": ("libeigen3-dev", ""),
}
"""Libraries from the default indexes of the package managers, and the promised time for another session."""
INSTALLATIONS = 10


async def interpreted(service: Service, language: str) -> None:
    """The median of runs in one session."""
    session = await _run(service, language, STATEMENTS[language], "")
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await _run(service, language, STATEMENTS[language], session.session_id)
        times.append(time.perf_counter() - start)
    row(f"stateful run, {language}", times, promise=PROMISES.get(language, "<= 3 ms"))


async def compiled(service: Service, language: Language) -> None:
    """Measures the first run, which builds; then later runs, in turn with the same program started bare."""
    code, build = PROGRAMS[language.name], language.handler.build
    assert build is not None
    places = Places(language, memory=service.profile.limits.memory)
    session_id = open_session(service)
    # Bypass the service and use the sandbox directly, to start the bare program in it.
    sandbox = await (await session_of(service, session_id)).sandbox()
    start = time.perf_counter()
    await _run(service, language.name, code, session_id)
    first = time.perf_counter() - start
    argv = [word.replace("{build}", places.build_folder(0)) for word in places.argv(build.run)]
    ours, floor = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await sandbox.run(argv, places.env(sandbox.path))
        floor.append(time.perf_counter() - start)
        start = time.perf_counter()
        await _run(service, language.name, code, session_id)
        ours.append(time.perf_counter() - start)
    row(f"first run with its build, {language.name}", [first])
    row(f"bare program, {language.name} (floor)", floor)
    row(f"second run, {language.name}", ours, floor, "<= 1.2x")


async def capture(on: Service, off: Service, language: str, name: str, earlier: str) -> None:
    """Measures runs that draw nothing, in turn: capture off, capture off again to show the noise, and capture on."""
    services = (off, off, on)
    sessions = [(await _run(service, language, earlier, "")).session_id for service in services]
    times: list[list[float]] = [[], [], []]
    for number in range(CAPTURE_ROUNDS):
        for at in range(len(services)):
            at = (at + number) % len(services)  # each comes first, second and last as often as the others
            start = time.perf_counter()
            await _run(services[at], language, STATEMENTS[language], sessions[at])
            times[at].append(time.perf_counter() - start)
    what = f"{language}, {name}" if name else language
    row(f"capture off, {what} (floor)", times[0])
    row(f"capture off again, {what}", times[1], times[0])
    row(f"capture on, {what}", times[2], times[0], "nothing")
    for service, session_id in zip(services, sessions, strict=True):
        await service.sessions.close(session_id)


def without_capture(profile: Profile) -> Profile:
    """The profile with the capture of figures turned off for all languages."""
    changed = {
        name: profile.language(name).model_copy(update={"env": {**profile.language(name).env, **settings}})
        for name, settings in NO_CAPTURE.items()
    }
    return profile.model_copy(update={"languages": {**profile.languages, **changed}})


async def installed(service: Service, language: str, library: str, promise: str) -> None:
    """Measures the installation of a library into new sessions; the first one, which downloads it, is not counted."""
    times = []
    for _ in range(INSTALLATIONS + 1):
        start = time.perf_counter()
        try:
            session = await install(service, [library], language=language)
        except SandboxError as error:
            print(f"{library}: not measured; {error}")
            return
        times.append(time.perf_counter() - start)
        await service.sessions.close(session.session_id)
    row(f"{library}, another session", times[1:], promise=promise)


async def _run(service: Service, language: str, code: str, session_id: str) -> Execution:
    result = await execute(service, code, language=language, session_id=session_id)
    assert result.status == "ok", result
    return result


async def main() -> None:
    """Measures every language whose programs are installed."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    profile = load_profile()
    async with open_service(profile) as service, open_service(without_capture(profile)) as silent:
        for name, language in service.languages.items():
            if any(
                [not await anyio.Path("/usr/bin", command).exists() for command in language.handler.requires.commands]
            ):
                print(f"{name}: not installed; {language.handler.requires.install}")
            elif name in PROGRAMS:
                await compiled(service, language)
            elif name in STATEMENTS:
                await interpreted(service, name)
                for what, earlier in EARLIER.get(name, {}).items():
                    await capture(service, silent, name, what, earlier)
        for name, (library, promise) in LIBRARIES.items():
            await installed(service, name, library, promise)


if __name__ == "__main__":
    anyio.run(main)
