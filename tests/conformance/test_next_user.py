"""Attack: leaving something for the next user in a sandbox that was warm. Outcome: the next user sees nothing of it,
because a used sandbox serves nobody else."""

from collections.abc import Mapping

import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute

pytestmark = pytest.mark.anyio


LEAVE = """
import builtins, ctypes, os, socket, subprocess, sys
builtins.left = 'left'
os.environ['LEFT'] = 'left'
sys.modules['left'] = sys
sys.path.insert(0, '/tmp/left')
libc, librt = ctypes.CDLL(None), ctypes.CDLL('librt.so.1')
libc.shmget(4711, 4096, 0o1666), libc.msgget(4711, 0o1666), libc.semget(4711, 1, 0o1666)
librt.mq_open(b'/left', os.O_CREAT | os.O_RDWR, 0o666, None)
for folder in ('/sandbox', '/home', '/home/libraries', '/home/figures', '/tmp', '/dev/shm'):
    with open(f'{folder}/left', 'w') as file:
        file.write('left')
with open('/home/.profile', 'w') as file:
    file.write('export LEFT=left')
subprocess.Popen(['sleep', '4711'], start_new_session=True)
left = socket.create_server(('127.0.0.1', 4711))
os.umask(0o777)
os.chdir('/tmp')
print('done')
"""
LOOK = """
import builtins, ctypes, os, socket, sys
libc, librt = ctypes.CDLL(None), ctypes.CDLL('librt.so.1')
found = [name for name in ('left',) if name in globals() or hasattr(builtins, name) or name in sys.modules]
found += [value for pair in os.environ.items() for value in pair if 'left' in value.lower()]
found += [place for place in sys.path if 'left' in place]
found += [name for name, call in (('shm', lambda: libc.shmget(4711, 4096, 0)), ('msg', lambda: libc.msgget(4711, 0)),
          ('sem', lambda: libc.semget(4711, 1, 0)), ('mq', lambda: librt.mq_open(b'/left', os.O_RDWR))) if call() >= 0]
for top in ('/sandbox', '/home', '/tmp', '/dev/shm'):
    found += [f'{folder}/{name}' for folder, folders, names in os.walk(top) for name in [*folders, *names]
              if name in ('left', '.profile')]
for process in filter(str.isdigit, os.listdir('/proc')):
    try:
        found += [process for line in open(f'/proc/{process}/cmdline') if '4711' in line and str(os.getpid()) != process]
    except OSError:
        pass
with socket.socket() as probe:
    if probe.connect_ex(('127.0.0.1', 4711)) == 0:
        found.append('a listener')
mask = os.umask(0o022)
found += [] if mask != 0o777 and os.getcwd() == '/sandbox' else ['umask or folder']
print(found)
"""


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"pool": {"min": 1, "languages": ("python",)}}


@pytest.mark.parametrize("leaving", ["closed", "reset", "not kept", "while it lives"])
async def test_the_next_user_finds_nothing(service: Service, leaving: str) -> None:
    await service.warm()
    await service.pool_until(lambda now: now.warm >= 1)
    first = await execute(service, LEAVE, keep_session=leaving != "not kept")
    assert first.stdout.text == "done\n", first
    if leaving == "closed":
        await service.sessions.close(first.session_id)
    if leaving == "reset":
        await service.sessions.reset(first.session_id)
    await service.pool_until(lambda now: now.warm >= 1)
    hits = service.pool().hits
    # If the session was reset, it is checked too: it also starts from nothing.
    for session in ["", "", *([first.session_id] if leaving == "reset" else [])]:
        result = await execute(service, LOOK, session_id=session)
        assert result.stdout.text == "[]\n", result
    assert service.pool().hits > hits
