"""A Docker daemon on another machine works over TLS just as a daemon on this machine works over its socket."""

import hashlib
import json
import random
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.archive import Member
from llm_sandbox_mcp.backends.base import Backend, Sandbox
from llm_sandbox_mcp.backends.layout import PATH, WORKDIR
from llm_sandbox_mcp.base.errors import EngineUnavailable, StartFailed
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend
from tests.deadlines import within
from tests.engines import MIB, certificates, changed, small_profile, surroundings
from tests.engines.certificates import Certificates
from tests.engines.spare import IMAGE, SecureDocker

from .engines import client

pytestmark = pytest.mark.anyio

SOON = 10.0


def profile_of(folder: Path, **docker: str) -> Profile:
    return small_profile(
        "docker",
        folder,
        docker={"host": "", **docker},
        containers={"image": IMAGE},
        limits={**small_profile("docker", folder).limits.model_dump(), "disk": 32 * MIB},
    )


def named(engine: SecureDocker, files: Certificates) -> Mapping[str, str]:
    return {"host": engine.secure_address} | {part: str(files.folder / f"{part}.pem") for part in ("ca", "cert", "key")}


@pytest.fixture
def profile(spare_docker: SecureDocker, folder: Path) -> Profile:
    """A profile that names the daemon and the certificates."""
    return profile_of(folder, **named(spare_docker, spare_docker.authority.client))


async def once(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), MIB):
        yield data[start : start + MIB]


async def test_the_daemon_is_named_with_its_version_and_address(
    spare_docker: SecureDocker, profile: Profile, folder: Path
) -> None:
    async with open_backend(profile, surroundings(folder)) as backend:
        first, *rest = await backend.probe()
    assert first.state == "ok" and first.detail.endswith(f" at {spare_docker.secure_address}")
    assert {check.state for check in rest} == {"ok"}


async def test_the_daemon_is_asked_over_tls_whether_it_answers(sandbox: Sandbox) -> None:
    assert not await sandbox.silence()


async def test_runs_keep_their_state_and_report_their_errors(service: Service) -> None:
    first = await execute(service, "x = 41")
    failed = await execute(service, "x += 1\n1 / 0", session_id=first.session_id)
    assert (failed.status, failed.exit_code) == ("error", 1) and "ZeroDivisionError" in failed.stderr.text
    assert (await execute(service, "x", session_id=first.session_id)).result == "42"


async def test_a_program_that_reads_its_input_to_the_end_prints_after_it(sandbox: Sandbox) -> None:
    data = random.Random(1).randbytes(3 * MIB)
    done = await sandbox.run(
        ["sh", "-c", "echo early; sha256sum; echo late >&2; exit 3"], {"PATH": PATH}, stdin=once(data)
    )
    assert done.stdout.decode() == f"early\n{hashlib.sha256(data).hexdigest()}  -\n"
    assert (done.stderr, done.exit_code) == (b"late\n", 3)


async def test_twenty_megabytes_go_in_and_come_out_the_same(sandbox: Sandbox) -> None:
    data = random.Random(2).randbytes(20_000_000)
    await copying.copy_in(sandbox, "deep/file", len(data), partial(once, data))
    assert [*await sandbox.list_files()] == ["deep/file"]
    got: list[Member] = []

    async def take(member: Member) -> None:
        got.append(member)

    await copying.copy_out(sandbox, WORKDIR, ["deep/file"], len(data), take)
    assert [(member.name, member.size) for member in got] == [("deep/file", len(data))]
    assert got[0].content is not None
    assert hashlib.sha256(got[0].content).digest() == hashlib.sha256(data).digest()


async def test_large_output_arrives_complete(sandbox: Sandbox) -> None:
    size = 50_000_000
    taken = 0
    async with await sandbox.spawn(["head", "-c", str(size), "/dev/zero"], {"PATH": PATH}) as process:
        async for part in process.stdout:
            taken += len(part)
        assert await process.wait() == 0
    assert taken == size


async def test_a_timeout_or_a_cancelled_run_leaves_a_session_that_works(service: Service) -> None:
    loop = "print('on', flush=True)\nwhile True: pass"
    first = await execute(service, f"x = 1\n{loop}", timeout=0.5)
    assert (first.status, first.session_state) == ("timeout", "kept")

    async with anyio.create_task_group() as tasks:

        async def cancel(stream: str, text: str) -> None:
            tasks.cancel_scope.cancel()

        tasks.start_soon(lambda: execute(service, loop, session_id=first.session_id, on_output=cancel))
    again = await execute(service, "x", session_id=first.session_id)
    assert (again.status, again.result) == ("ok", "1")


async def test_code_that_answers_no_interrupt_is_killed_remotely(service: Service) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    first = await execute(service, stubborn, timeout=0.5)
    assert (first.status, first.exit_code, first.session_state) == ("timeout", 137, "fresh")
    assert (await execute(service, "6 * 7", session_id=first.session_id)).result == "42"


async def test_limits_that_are_reached_are_seen_remotely(service: Service) -> None:
    result = await execute(service, "held = []\nwhile True: held.append(bytearray(1 << 20))")
    assert result.status == "out_of_memory", result


async def test_an_image_is_built_and_one_that_cannot_be_pulled_says_why(
    spare_docker: SecureDocker, profile: Profile, folder: Path
) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text(f"FROM {IMAGE}\nCOPY large /large\n")
    (folder / "own/large").write_bytes(bytes(MIB))
    own = {"image": "llm-sandbox-mcp-far", "dockerfiles": {"python": str(folder / "own/Dockerfile")}}
    built = changed(profile, containers=own)
    try:
        assert await runs(open_backend(built, surroundings(folder)), built)
    finally:
        api = client(spare_docker.address)
        api.remove_image("llm-sandbox-mcp-far", force=True)
        api.close()
    away = {"image": "nowhere", "registry": "127.0.0.1:9", "pull": "missing"}
    pulled = changed(profile, containers=away)
    with pytest.raises(StartFailed, match=r"127\.0\.0\.1:9/nowhere cannot be pulled"):
        await runs(open_backend(pulled, surroundings(folder)), pulled)


async def runs(backend: Backend, profile: Profile) -> bool:
    with anyio.fail_after(30):
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")) as sandbox:
            return (await sandbox.run(["echo", "yes"], {"PATH": PATH})).stdout == b"yes\n"


def opened(profile: Profile, folder: Path, environ: Mapping[str, str]) -> Backend:
    return open_backend(profile, replace(surroundings(folder), environ=environ))


@pytest.mark.parametrize("place", ["DOCKER_CERT_PATH", "DOCKER_CONFIG"])
async def test_the_variables_of_dockers_tools_name_the_daemon(
    spare_docker: SecureDocker, folder: Path, place: str
) -> None:
    environ = {"DOCKER_HOST": spare_docker.secure_address, "DOCKER_TLS_VERIFY": "1"}
    environ[place] = str(spare_docker.authority.client.folder)
    assert await runs(opened(profile_of(folder), folder, environ), profile_of(folder))


@pytest.mark.parametrize("place", ["DOCKER_CERT_PATH", "DOCKER_CONFIG"])
async def test_the_variables_of_dockers_tools_name_the_certificates_for_the_profiles_host(
    spare_docker: SecureDocker, folder: Path, place: str
) -> None:
    environ = {"DOCKER_HOST": "tcp://127.0.0.1:9", "DOCKER_TLS_VERIFY": "1"}
    environ[place] = str(spare_docker.authority.client.folder)
    profile = profile_of(folder, host=spare_docker.secure_address)
    assert await runs(opened(profile, folder, environ), profile)


async def test_a_context_with_certificates_names_the_daemon(spare_docker: SecureDocker, folder: Path) -> None:
    key = hashlib.sha256(b"far").hexdigest()
    meta = folder / "docker/contexts/meta" / key / "meta.json"
    meta.parent.mkdir(parents=True)
    endpoint = {"Host": spare_docker.secure_address, "SkipTLSVerify": False}
    meta.write_text(json.dumps({"Name": "far", "Metadata": {}, "Endpoints": {"docker": endpoint}}))
    shutil.copytree(spare_docker.authority.client.folder, folder / "docker/contexts/tls" / key / "docker")
    environ = {"DOCKER_CONFIG": str(folder / "docker")}
    assert await runs(opened(profile_of(folder, context="far"), folder, environ), profile_of(folder))


async def refusal(profile: Profile, folder: Path) -> str:
    backend = open_backend(profile, surroundings(folder))
    with pytest.raises(EngineUnavailable) as raised, within(SOON):
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")):
            pass
    assert "\n" not in str(raised.value)
    return str(raised.value)


FIX = "check docker.ca, docker.cert and docker.key in the profile, or DOCKER_CERT_PATH"
NO_TLS = (
    "set docker.ca, docker.cert and docker.key in the profile, "
    "or DOCKER_TLS_VERIFY and DOCKER_CERT_PATH in the environment"
)

WRONG: Mapping[str, tuple[Mapping[str, str], str, str]] = {
    "no certificate": ({"cert": "", "key": ""}, "TLS with docker .* fails: .*bad certificate", FIX),
    "a certificate of another authority": (
        {"cert": "{other}/cert.pem", "key": "{other}/key.pem"},
        "TLS with docker .* fails: .*(bad certificate|unknown ca)",
        FIX,
    ),
    "an authority that did not sign the engine's certificate": (
        {"ca": "{other}/ca.pem"},
        "TLS with docker .* fails: certificate verify failed",
        FIX,
    ),
    "no TLS": ({"ca": "", "cert": "", "key": ""}, "docker at .* accepts only TLS", NO_TLS),
    "a certificate without its key": ({"key": ""}, "the certificates for docker .* cannot be used", FIX),
    "a missing file": ({"ca": "/nonexistent/ca.pem"}, "docker at .*: no file /nonexistent/ca.pem", FIX),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_setting_is_soon_reported_with_its_fix(
    spare_docker: SecureDocker, folder: Path, wrong: str
) -> None:
    changed, cause, fix = WRONG[wrong]
    other = certificates.ensure("other").client.folder
    settings = {key: value.format(other=other) for key, value in changed.items()}
    profile = profile_of(folder, **{**named(spare_docker, spare_docker.authority.client), **settings})
    said, _, step = (await refusal(profile, folder)).partition("; ")
    assert re.search(cause, said) and spare_docker.secure_address in said
    assert step == fix
