"""A program that uses the library, also run by an ordinary user: reports as JSON what sandboxes have that start with the
files of another."""

import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import anyio

from llm_sandbox_mcp.backends.base import Backend, Sandbox
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.wiring import open_service

FILL = """
import os, socket
os.chdir("/sandbox")
os.mkdir("closed", 0o700)
os.makedirs("deep/er")
for name in ("plain", "closed/inner", "deep/er/file", "/home/libraries/some.py", "/tmp/state"):
    with open(name, "w") as file:
        file.write("first " + name)
os.chmod("plain", 0o600)
os.chmod("deep/er/file", 0o4755)
os.link("plain", "same")
os.symlink("plain", "link")
os.symlink("../../../../etc", "out")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.setxattr("plain", "user.note", b"kept")
os.utime("deep/er/file", (1, 1))
os.rmdir("/home/figures")
os.symlink("/nowhere", "/home/figures")
"""
LIST = """
import json, os, stat
def shown(path):
    found = os.lstat(path)
    what = [oct(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns if not stat.S_ISDIR(found.st_mode) else 0]
    if stat.S_ISREG(found.st_mode):
        return [*what, open(path).read(), found.st_nlink, os.listxattr(path)]
    return [*what, os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""]
places = ("/sandbox", "/home", "/tmp")
paths = [os.path.join(at, name) for place in places for at, folders, files in os.walk(place) for name in folders + files]
print(json.dumps({path: shown(path) for path in [*places, *paths]}))
"""
CHANGE = """
import os, shutil
os.chdir("/sandbox")
with open("plain", "a") as file:
    file.write(" second")
with open("closed/new", "w") as file:
    file.write("second")
os.chmod("closed", 0o500)
shutil.rmtree("deep")
os.mkdir("deep")
os.unlink("link")
os.mkdir("link")
os.rename("same", "other")
os.unlink("/home/libraries/some.py")
os.mkdir("/tmp/state.d")
print(open("plain").read(), os.listdir("deep"), sorted(os.listdir("closed")), os.getuid())
"""
ATTACK = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def error(result):
    return ctypes.get_errno() if result else 0
tried = [
    error(libc.umount2(b"/sandbox", 2)),
    error(libc.mount(b"", b"/sandbox", None, 0x20 | 0x1000, None)),
    error(libc.syscall(429, 0, b"/sandbox", -100, b"/tmp", 0)),
    error(libc.unshare(0x20000)),
]
lines = [line.split() for line in open("/proc/self/mountinfo")]
places = ("/sandbox", "/home", "/tmp", "/dev/shm")
print([tried, sorted({(words[4], words[5]) for words in lines if words[4] in places})])
"""
"""Each of the calls is refused with EPERM."""


async def python(sandbox: Sandbox, code: str) -> str:
    """What the code prints, or its error."""
    done = await sandbox.run(["/usr/bin/python3", "-c", code], {"PATH": "/usr/bin:/bin"})
    return (done.stdout + done.stderr).decode().strip()


async def look(backend: Backend, policy: Policy) -> dict[str, Any]:
    """Keeps the files of one sandbox, and looks at them from others."""
    rows = {row.name: (row.state, row.detail) for row in await backend.probe()}
    found: dict[str, Any] = {"row": rows.get("shared files"), "user": rows["user of the machine"][1]}
    async with AsyncExitStack() as scope:
        seed = await scope.enter_async_context(backend.sandbox(policy))
        found["filled"] = await python(seed, FILL)
        found["seed"] = json.loads(await python(seed, LIST))
        layer = await scope.enter_async_context(backend.kept(seed))
        found["kept"] = [layer is not None and layer.alive, seed.alive]
        one, two = [await scope.enter_async_context(backend.sandbox(policy, layer=layer)) for _ in range(2)]
        found["shared"] = layer is not None and [one.layer is layer, two.layer is layer]
        found["one"] = json.loads(await python(one, LIST))
        found["changed"] = await python(one, CHANGE)
        found["two"] = json.loads(await python(two, LIST))
        async with backend.sandbox(policy, layer=layer) as next_one:
            found["next"] = json.loads(await python(next_one, LIST))
        found["attack"] = await python(two, ATTACK)
    return found


async def main() -> None:
    profile = load_profile(sys.argv[1])
    with anyio.fail_after(90):
        async with open_service(profile) as service:
            print(json.dumps(await look(service.backend, profile.policy())))


if __name__ == "__main__":
    anyio.run(main)
