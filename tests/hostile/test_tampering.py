"""Attack: changing the runner's own code and state. Outcome: the run answers or is ended in time; the session works
again after a reset, and other languages in it are not affected."""

import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.engines import need_image
from tests.hostile.conftest import ANSWER, Arena

pytestmark = [pytest.mark.anyio, pytest.mark.only_in_all]

PYTHON = {
    "no builtins": "import builtins\nfor name in list(vars(builtins)): delattr(builtins, name)",
    "writes that write nothing": "import os\nos.write = lambda *_: 0",
    "requests of its own": 'import os\nos.read = lambda *_: b\'{"nonce": "0", "code": "1"}\\n\'',
    "the runner's own names": """
import sys
for name, module in [*sys.modules.items()]:
    if name.startswith('sandbox_'):
        vars(module).update({key: lambda *_, **__: 42 for key in vars(module) if not key.startswith('__')})
""",
    "an audit hook": "import sys\ndef hook(*_): raise RuntimeError\nsys.addaudithook(hook)",
    "exceptions from another thread": """
import ctypes, threading
def throw():
    raises = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while True: raises(ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(SystemExit))
threading.Thread(target=throw, daemon=True).start()
""",
    "a filter of system calls": """
import ctypes, struct
parts = (0x20, 0, 0, 0), (0x15, 0, 1, 1), (0x06, 0, 0, 0x50000), (0x06, 0, 0, 0x7fff0000)
program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *part) for part in parts))
ctypes.CDLL(None).prctl(22, 2, struct.pack('HxxxxxxQ', 4, ctypes.addressof(program)))
""",
}
OTHERS = {
    "functions of bash": ("bash", 'for name in read printf eval exec trap builtin; do eval "$name() { :; }"; done'),
    "constants of bash": ("bash", "for name in $(compgen -v); do readonly $name; done 2>/dev/null"),
    "prototypes": (
        "javascript",
        "for (const one of [Object, Array, String, Promise, Buffer]) for (const name of Object.getOwnPropertyNames(one.prototype))"
        " if (name !== 'constructor') try { one.prototype[name] = () => { throw 1 } } catch {}",
    ),
    "classes of Ruby": ("ruby", "class String; def ==(_) = false; end\nclass IO; def write(*) = 0; end"),
    "functions of R": (
        "r",
        "for (name in c('cat', 'eval', 'parse')) { unlockBinding(name, baseenv()); assign(name, function(...) stop(), baseenv()) }",
    ),
}
ATTACKS = {name: ("python", code) for name, code in PYTHON.items()} | OTHERS
HONEST = {"bash": "echo $((6 * 7))", "r": "cat(6 * 7)", "ruby": "puts 6 * 7", "javascript": "console.log(6 * 7)"}
GRACE = {"grace": 0.25}


async def answer(arena: Arena, language: str, session: str) -> str:
    result = await execute(
        arena.service, HONEST.get(language, "print(6 * 7)"), language=language, session_id=session, timeout=ANSWER
    )
    return result.stdout.text.strip()


@pytest.mark.parametrize(("language", "code"), ATTACKS.values(), ids=ATTACKS)
async def test_a_runner_that_was_changed_harms_its_own_session_only(arena: Arena, language: str, code: str) -> None:
    result = await arena.attack(code, language=language, timeout=1, limits=GRACE)
    session = result.session_id
    assert result.duration < 1 + ANSWER
    if result.session_state == "fresh":
        assert result.notes, result
    # A changed runner may give any answer, but it has to give it in time.
    again = await execute(
        arena.service,
        HONEST.get(language, "print(6 * 7)"),
        language=language,
        session_id=session,
        timeout=1,
        limits=GRACE,
    )
    assert again.duration < 1 + ANSWER
    assert await answer(arena, "bash", session) == "42" or language == "bash"
    await arena.service.sessions.reset(session)
    assert await answer(arena, language, session) == "42"


LEAVE = """
shopt -s nullglob
for folder in /sandbox /home /tmp /home/.local/lib/python3.{9..15}/site-packages; do
  mkdir -p "$folder"
  for name in os sys io json re site sitecustomize usercustomize encodings codecs runner sandbox_serve; do
    echo 'print("planted")' > "$folder/$name.py"
  done
  echo 'import os; os.write(1, b"planted")' > "$folder/planted.pth"
  for name in .bashrc .bash_profile .profile .inputrc; do echo 'echo planted' > "$folder/$name"; done
  for name in .Rprofile .irbrc .gemrc .pryrc; do echo 'print("planted")' > "$folder/$name"; done
  for name in package.json .npmrc .noderc index.js; do echo 'console.log("planted")' > "$folder/$name"; done
done
"""


@pytest.mark.parametrize("language", ["python", "bash", "javascript", "ruby", "r"])
async def test_files_left_for_the_next_interpreter_of_a_session_are_not_run(arena: Arena, language: str) -> None:
    need_image(arena.backend, language)
    opened = await arena.execute(HONEST.get(language, "print(6 * 7)"), language=language)
    session = opened.session_id
    left = await arena.attack(LEAVE, language="bash", session_id=session)
    assert left.status == "ok", left
    await arena.service.sessions.refresh(session, language)
    assert await answer(arena, language, session) == "42"
