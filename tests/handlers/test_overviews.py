"""Overviews: pictures that are too large or too many to be shown, drawn as one small picture in their own sandbox."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.results import Execution, Overview
from llm_sandbox_mcp.files.images import Image, identify
from llm_sandbox_mcp.files.pictures import LARGEST, can_be_shown
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need, need_image, small_profile

from .serving import LANGUAGES, missing, service_with_default_libraries

pytestmark = pytest.mark.anyio

LARGE = {
    "in bytes": "Image.frombytes('RGB', (900, 600), os.urandom(900 * 600 * 3)).save('sub/a.png')",
    "on one side": "Image.new('L', (9000, 6000 // 4)).save('sub/a.png')",
    "in pixels": "Image.new('1', (7800, 5200)).save('sub/a.png')",
    "with 16 bits": "Image.new('I;16', (9000, 900)).save('sub/a.png')",
    "with a table of colours": "Image.new('P', (9000, 900)).save('sub/a.gif')",
    "without colours of light": "Image.new('CMYK', (900, 9000)).save('sub/a.jpg')",
}
SIZES = {
    "in bytes": (900, 600),
    "on one side": (1200, 200),
    "in pixels": (1200, 800),
    "with 16 bits": (1200, 120),
    "with a table of colours": (1200, 120),
    "without colours of light": (120, 1200),
}
MANY = """
import matplotlib.pyplot as plt
for number in range(7):
    plt.figure()
    plt.plot([number])
"""


@pytest.fixture
async def service(backend_name: str) -> AsyncIterator[Service]:
    await need(backend_name)
    need_image(backend_name, "python")
    with anyio.fail_after(120):
        async with service_with_default_libraries(backend_name) as opened:
            yield opened


def seen(overview: Overview | None) -> Image:
    """What an overview is, which every model can look at."""
    assert overview is not None and not overview.lacking, overview
    image = identify(overview.picture)
    assert image is not None and can_be_shown(overview.picture) and len(overview.picture) <= LARGEST
    return image


async def overview_of(service: Service, run: Execution) -> Overview | None:
    return await service.overviews.of_artifacts(run.session_id, run.artifacts)


@pytest.mark.parametrize("how", LARGE)
async def test_a_picture_that_is_too_large_to_be_shown_is_made_smaller(service: Service, how: str) -> None:
    code = f"import os\nfrom PIL import Image\nos.makedirs('sub', exist_ok=True)\n{LARGE[how]}"
    run = await execute(service, code, for_model=True, keep_session=False)
    assert run.overview is not None and run.overview.names == (run.artifacts[0].name,), run
    assert seen(run.overview) == Image("image/jpeg", *SIZES[how])


async def test_figures_beyond_the_fourth_are_on_one_picture_also_later(service: Service) -> None:
    run = await execute(service, MANY, for_model=True)
    assert run.overview is not None and run.overview.names == ("figure-5.png", "figure-6.png", "figure-7.png"), run
    # Two columns and two rows, with a line for the names above each.
    assert seen(run.overview) == Image("image/jpeg", 1200, 2 * (443 + 24))
    found = await overview_of(service, run)
    assert found == run.overview
    await execute(service, "open('figure-5.png', 'w').write('another file')", session_id=run.session_id)
    assert seen(await overview_of(service, run)) == seen(found)
    await service.sessions.close(run.session_id)
    assert await overview_of(service, run) == Overview(lacking="the session has ended")


async def test_while_code_runs_in_the_session_nothing_is_drawn_and_the_call_does_not_wait(service: Service) -> None:
    made = await execute(service, MANY)
    running = anyio.Event()

    async def wait() -> None:
        async def heard(*_: str) -> None:
            running.set()

        code = "import time\nprint('runs', flush=True)\ntime.sleep(100)"
        await execute(service, code, session_id=made.session_id, on_output=heard)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await running.wait()
        assert await overview_of(service, made) == Overview(lacking="code runs in the session")
        assert await service.sessions.interrupt(made.session_id)
    seen(await overview_of(service, made))


async def test_an_overview_ends_when_its_session_is_stopped(service: Service) -> None:
    """Long before its own limit, which the code of a library in the session would use up."""
    made = await execute(service, MANY)
    endless = (
        "import os; os.makedirs('/home/libraries/python/PIL'); open('/home/libraries/python/PIL/__init__.py', 'w')"
    )
    await execute(service, f"{endless}.write('import time; time.sleep(1000)')", session_id=made.session_id)
    answers: list[Overview | None] = []

    async def ask() -> None:
        answers.append(await overview_of(service, made))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while not answers:
                await anyio.lowlevel.checkpoint()
                await service.sessions.interrupt(made.session_id)
    assert answers == [Overview(lacking="the sandbox could not make them smaller")]


async def test_nothing_is_drawn_for_pictures_that_are_shown_and_for_who_does_not_look(service: Service) -> None:
    shown = await execute(service, MANY.replace("7", "5"), for_model=True)
    assert (len(shown.artifacts), shown.overview) == (5, None)
    unseen = await execute(service, MANY, keep_session=False)
    assert (len(unseen.artifacts), unseen.overview) == (7, None)


async def test_what_is_no_picture_has_only_its_name_on_an_overview(service: Service) -> None:
    code = "from PIL import Image\nfor number in range(3):\n    Image.new('L', (9000, 9)).save(f'{number}.png')\n"
    code += "open('1.png', 'r+b').truncate(60); open('2.png', 'ab').write(b'more')"
    run = await execute(service, code, for_model=True)
    assert run.overview is not None and run.overview.names == ("0.png", "1.png", "2.png"), run
    seen(run.overview)
    single = await service.overviews.of_artifacts(run.session_id, run.artifacts[1:2])
    assert single == Overview(lacking="the sandbox could not make them smaller")


@pytest.mark.parametrize("language", ["bash", "r"])
async def test_pictures_of_other_languages_are_drawn_where_the_sandbox_has_the_program(
    service: Service, backend_name: str, language: str
) -> None:
    if backend_name != "embedded" or missing(LANGUAGES[language], libraries=False):
        pytest.skip(f"needs bubblewrap and {language}")
    await execute(service, "1", keep_session=False)  # prepares Python's libraries
    code = {
        "bash": "python3 -c \"from PIL import Image; Image.new('L', (9000, 900)).save('a.png')\"",
        "r": "png('a.png', 9000, 900); plot(1:3); invisible(dev.off())",
    }
    run = await execute(service, code[language], language=language, for_model=True)
    assert seen(run.overview) == Image("image/jpeg", 1200, 120)


@pytest.mark.parametrize("backend", ["embedded"])
async def test_without_the_program_a_picture_is_not_drawn_and_the_run_is_the_same(backend: str) -> None:
    await need(backend)
    with host_folder() as folder:
        async with open_service(small_profile(backend, folder)) as service:
            code = (
                "import struct, zlib\n"
                "def chunk(name, content): return struct.pack('>I', len(content)) + name + content + bytes(4)\n"
                "open('a.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 9000, 2, 8, 0, 0, 0, 0)))"
            )
            run = await execute(service, code, for_model=True)
    assert [(artifact.name, artifact.width) for artifact in run.artifacts] == [("a.png", 9000)]
    assert (run.status, run.overview) == ("ok", Overview(lacking="the sandbox could not make them smaller"))
