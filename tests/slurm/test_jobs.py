"""The files below configs/slurm, submitted unchanged by an ordinary user to a real node."""

import re
from pathlib import Path

import anyio
import httpx2
import pytest

from llm_sandbox_mcp.host.folders import CONFIGS
from tests.containers.engines import until
from tests.mcp.processes import below, gone, watch_children

from .conftest import LIMIT, SETTINGS, USER, Account, Job, run_as

pytestmark = pytest.mark.anyio

STRANGER = 1
"""Another user of the node."""
ASK = """
import sys, urllib.error, urllib.request
body, headers = b'{"code": "x = 1"}', {"Content-Type": "application/json"}
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/execute_code/", body, headers)).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


async def finished(job: Job) -> str:
    """Waits until the job has ended and returns its state; checks that it left nothing on the node."""
    await until(job.over, LIMIT)
    assert not job.folder.exists()
    assert not [*job.account.scratch.iterdir()]
    return job.state


async def call(url: str, token: str, code: str) -> dict[str, object]:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http:
        answer = await http.post(f"{url}/execute_code/", json={"code": code})
    assert answer.status_code == 200, answer.text
    result: dict[str, object] = answer.json()["result"]
    return result


async def test_each_task_of_a_job_runs_its_code_on_its_own_server(account: Account) -> None:
    done = account.run("sbatch", "--wait", "--array=0-1", "job.sbatch")
    assert done.returncode == 0, done
    printed = {path.name.rpartition("-")[2]: path.read_text() for path in account.home.glob("evaluate-*.out")}
    assert {name: text.split()[-8:] for name, text in printed.items()} == {
        "0.out": [str(2**power) for power in range(8)],
        "1.out": [str(3**power) for power in range(8)],
    }
    assert len(set(re.findall(r"http://127.0.0.1:\d+", "".join(printed.values())))) == 2
    assert not [*account.scratch.iterdir()]
    assert not [*account.home.glob("llm-sandbox-*")]


@pytest.mark.parametrize(
    ("options", "outcome"),
    [((), "CANCELLED"), (("--batch", "--signal=TERM"), "COMPLETED 0:0")],
    ids=["cancelled", "warned of its time limit"],
)
async def test_only_its_user_can_use_a_server_and_it_ends_with_its_job(
    account: Account, options: tuple[str, ...], outcome: str
) -> None:
    job = account.submit("server.sbatch")
    place = await job.listening()
    url, token = place["LLM_SANDBOX_URL"], Path(place["LLM_SANDBOX_TOKEN_FILE"])
    assert await call(url, token.read_text(), "out = 6 * 7") == {"out": 42}

    step = account.run("srun", f"--jobid={job.id}", "--overlap", "sh", "-c", f". {job.folder}/env; python3 evaluate.py")
    assert step.stdout.split() == [str(2**power) for power in range(8)], step

    script = job.pid()
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in (script, *below(script))}
    assert "bwrap" in names.values()
    assert {name for pid, name in names.items() if _owners(pid) != {USER}} == set()

    assert run_as(STRANGER, "/usr/bin/python3", "-c", ASK, url).stdout == "401\n"
    assert "Permission denied" in run_as(STRANGER, "cat", str(token)).stderr
    assert account.run("cat", str(token)).stdout == token.read_text()

    with watch_children(script) as watched:
        job.cancel(*options)
        with anyio.fail_after(LIMIT):
            await gone(watched)
    assert (await finished(job)).startswith(outcome)
    assert "Traceback" not in job.output


async def test_a_job_ends_with_its_program_and_the_exit_code_of_that(account: Account) -> None:
    job = account.submit("server.sbatch", "sh", "-c", 'echo "$LLM_SANDBOX_URL"; exit 7')
    assert await finished(job) == "FAILED 7:0"
    assert re.search(r"^http://127.0.0.1:\d+$", job.output, re.MULTILINE)


async def test_a_program_is_warned_of_its_time_limit_and_the_server_outlives_it(account: Account) -> None:
    program = "trap 'kill $!; python3 evaluate.py; exit 3' TERM; touch begun; sleep infinity & wait"
    job = account.submit("server.sbatch", "bash", "-c", program)
    begun = account.home / "begun"
    await until(lambda: begun.exists() or job.over(), LIMIT)
    job.cancel("--batch", "--signal=TERM")
    assert await finished(job) == "FAILED 3:0"
    assert job.output.split()[-8:] == [str(2**power) for power in range(8)]


async def test_a_node_that_cannot_run_code_is_reported_in_the_jobs_output(account: Account) -> None:
    profile = account.home / "without.toml"
    profile.write_text((CONFIGS / "slurm.toml").read_text() + SETTINGS.format(bwrap="no-such-bwrap"))
    job = account.submit("server.sbatch", "touch", "begun", LLM_SANDBOX_PROFILE=str(profile))
    assert await finished(job) == "FAILED 2:0"
    (line,) = job.output.splitlines()
    assert "no-such-bwrap" in line and "apt-get install bubblewrap" in line
    assert not (account.home / "begun").exists()


def _owners(pid: int) -> set[int]:
    """The real, effective, saved and file system uid of a process."""
    (line,) = re.findall(r"^Uid:(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {int(word) for word in line.split()}
