"""Code to run inside a sandbox: raw system calls, and a way to find the runner's nonce."""

ATTEMPT = """
import ctypes, errno, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
attempts = {}
def call(name, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    attempts[name] = 'done' if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(name, function, *arguments):
    try:
        function(*arguments)
        attempts[name] = 'done'
    except OSError as error:
        attempts[name] = errno.errorcode.get(error.errno, str(error))
def write(path, text):
    with open(path, 'w') as file:
        file.write(text)
"""
"""`call(name, number, ...)` and `attempt(name, function, ...)` record the outcome of each call in `attempts`."""

REPORT = "\nprint(json.dumps(attempts))"

EACH = """
import ctypes, errno, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def answer(number):
    reader, writer = os.pipe()
    if os.fork() == 0:
        child = os.getpid()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        if os.getpid() == child:
            os.write(writer, (errno.errorcode[ctypes.get_errno()] if result == -1 else 'done').encode())
        os._exit(0)
    os.close(writer)
    found = os.read(reader, 99).decode() or 'ended'
    os.close(reader)
    os.wait()
    return found
print(json.dumps({name: answer(number) for name, number in json.loads(sys.argv[1]).items()}))
"""
"""Makes each call whose name and number are in the argument, with arguments that are all ones, in a child: some end it,
and some wait until a timer ends it."""

NONCE = """
import os, sys
def nonce():
    frame = sys._getframe()
    while frame is not None:
        for value in frame.f_locals.values():
            for found in value if isinstance(value, tuple) else (value,):
                if isinstance(found, dict) and isinstance(found.get('nonce'), str):
                    return found['nonce']
        frame = frame.f_back
    raise LookupError
def frame(kind, payload=b''):
    return b'\\x1e' + nonce().encode() + kind + str(len(payload)).encode() + b'\\n' + payload
def end(report):
    for at in range(0, len(report) or 1, 4000):
        part = report[at:at + 4000]
        os.write(1, frame(b'.' if at + 4000 >= len(report) else b'+', part))
    os.write(2, frame(b'.'))
"""
"""Code in the runner's process can find the nonce, which only the runner should know: `end(report)` forges a run's
end."""

RESUMED = """
import ctypes, signal
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
def stay_awake():
    if not timer:
        assert libc.timer_create(1, (ctypes.c_int * 16)(0, 0, signal.SIGCONT), ctypes.byref(timer)) == 0
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1_000_000), None)
"""
"""The server pauses code that hinders its own tools. A process that calls `stay_awake()` again and again is continued
by a timer of the kernel."""

HUNT = """
import os, signal
known = {int(name) for name in os.listdir('/proc') if name.isdigit()}
ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    known.add(os.getpid())
    os.write(ready[1], b'x')
    while True:
        for name in os.listdir('/proc'):
            if name.isdigit() and int(name) not in known:
                try:
                    os.kill(int(name), signal.SIG%s)
                except OSError:
                    pass
os.read(ready[0], 1)
open('file', 'w').write('x')
print('x' * 20_000)
"""
"""Sends a signal to each new process, for as long as the session lasts; leaves a file and much output."""
