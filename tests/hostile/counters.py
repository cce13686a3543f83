"""Code to run inside a sandbox: it uses up a resource that the kernel counts per user, or for the whole machine."""

from collections.abc import Mapping
from dataclasses import dataclass

HOLD = """
import ctypes, os, platform, select, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = platform.machine() == 'x86_64'
kept = []
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def hold(take, processes):
    '''Has processes take until they are refused, for some seconds, and stay with what they have.'''
    done, counted = os.pipe()
    for _ in range(processes):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.close(done)
            taken, until, refused = 0, time.monotonic() + 3, ''
            try:
                while time.monotonic() < until:
                    take()
                    taken += 1
            except (OSError, MemoryError) as error:
                refused = type(error).__name__ + ' ' + str(getattr(error, 'errno', ''))
            os.write(counted, f'{taken} {refused}; '.encode())
            os.close(counted)
            while True:
                time.sleep(1000)
    os.close(counted)
    with open(done) as answers:
        print(answers.read())
"""

_WATCH = """
def watch(number):
    events = [os.eventfd(0) for _ in range(number)]
    def take():
        poll = select.epoll()
        kept.append((poll, events))
        for event in events:
            poll.register(event)
    return take
"""
_INOTIFY = """
def inotify():
    kept.append(check(libc.inotify_init()))
"""
_QUEUE = """
class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ('flags', 'number', 'size', 'used', 'a', 'b', 'c', 'd')]
librt = ctypes.CDLL('librt.so.1', use_errno=True)
def queue(number=10, size=8192):
    name = b'/%d-%d' % (os.getpid(), len(kept))
    attributes = ctypes.byref(Attributes(0, number, size))
    kept.append(check(librt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, attributes)))
def queue_if_any():
    try:
        queue(1, 16)
    except PermissionError:
        print('there are none here')
"""
_SIGNAL = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
def send():
    check(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN) + 1, None))
"""
_FLIGHT = """
def fly(number=200):
    ours, theirs = socket.socketpair()
    kept.append((ours, theirs))
    socket.send_fds(ours, [b'x'], [0] * number)
"""
_TERMINAL = """
def terminal():
    kept.append(os.openpty())
"""
_CONTEXT = """
def context(events=2000):
    place = ctypes.c_ulong(0)
    check(libc.syscall(206 if x86 else 0, events, ctypes.byref(place)))
    kept.append(place)
"""


@dataclass(frozen=True)
class Counter:
    """Code that uses the counter up, and code that must still work for everyone else.

    The default of `use` needs nothing of the counter: it is for counters of the whole machine.
    """

    take: str
    use: str = "print(1)"


COUNTERS: Mapping[str, Counter] = {
    "epoll watches": Counter(f"{HOLD}{_WATCH}hold(watch(1500), 12)", f"{HOLD}{_WATCH}watch(10)()"),
    "inotify instances": Counter(f"{HOLD}{_INOTIFY}hold(inotify, 4)", f"{HOLD}{_INOTIFY}inotify()"),
    "message queues": Counter(f"{HOLD}{_QUEUE}hold(queue, 4)", f"{HOLD}{_QUEUE}queue_if_any()"),
    "pending signals": Counter(f"{HOLD}{_SIGNAL}hold(send, 4)", f"{HOLD}{_SIGNAL}send()"),
    "descriptors in flight": Counter(f"{HOLD}{_FLIGHT}hold(fly, 12)", f"{HOLD}{_FLIGHT}fly(2)"),
    "pseudo-terminals": Counter(f"{HOLD}{_TERMINAL}hold(terminal, 4)", f"{HOLD}{_TERMINAL}terminal()"),
    "aio contexts": Counter(f"{HOLD}{_CONTEXT}hold(context, 4)"),
}
