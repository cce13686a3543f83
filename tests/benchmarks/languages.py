"""How fast each language is: a run on a live interpreter; for compiled ones the second run beside the bare program."""

import time

import anyio

from llm_sandbox_mcp.kernel import Places
from llm_sandbox_mcp.languages import Language
from llm_sandbox_mcp.profile import load_profile
from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service, open_service
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
    """The first run, which builds, and runs of what is built in turn with the same program started bare."""
    code, build = PROGRAMS[language.name], language.handler.build
    assert build is not None
    places = Places(language, memory=service.profile.limits.memory)
    session_id = service.open_session()
    # The sandbox itself is reached past the service, to start the program in it without anything around.
    sandbox = await service._sessions.get(session_id).sandbox()
    start = time.perf_counter()
    await _run(service, language.name, code, session_id)
    first = time.perf_counter() - start
    argv = [word.replace("{build}", places.build_folder(0)) for word in places.argv(build.run)]
    ours, floor = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await sandbox.run(argv, places.env())
        floor.append(time.perf_counter() - start)
        start = time.perf_counter()
        await _run(service, language.name, code, session_id)
        ours.append(time.perf_counter() - start)
    row(f"first run with its build, {language.name}", [first])
    row(f"bare program, {language.name} (floor)", floor)
    row(f"second run, {language.name}", ours, floor, "<= 1.2x")


async def _run(service: Service, language: str, code: str, session_id: str) -> Execution:
    result = await service.execute(code, language=language, session_id=session_id)
    assert result.status == "ok", result
    return result


async def main() -> None:
    """Measures every language whose programs are here."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    async with open_service(load_profile()) as service:
        for name, language in service.languages.items():
            if any(
                [not await anyio.Path("/usr/bin", command).exists() for command in language.handler.requires.commands]
            ):
                print(f"{name}: not here; {language.handler.requires.install}")
            elif name in PROGRAMS:
                await compiled(service, language)
            elif name in STATEMENTS:
                await interpreted(service, name)


if __name__ == "__main__":
    anyio.run(main)
