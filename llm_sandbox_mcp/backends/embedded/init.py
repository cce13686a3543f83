"""PID 1 of a sandbox: starts processes on request, reports how they ended, and ends with its server.

It runs inside the sandbox, as `python3 -I -S init.py CONTROL_FD LIMITS LANDLOCK` or as a fork of a zygote. Each request
and answer is one packet on the control socket; NUL separates its fields, and descriptors are passed with it:

    S id cwd argc argv... env...  + stdin, stdout, stderr   ->  P id, or F id errno; later X id exit-code
    Z id cwd  + stdin, stdout, stderr                       ->  P id, or F id errno; later X id exit-code: the process
                                                                goes on as the interpreter that PID 1 is a fork of
    K id signal                                             ->  nothing: the signal goes to the process group
    A id                                                    ->  A id: all earlier requests are done
    H - id...                                               ->  nothing: all processes are stopped, and those started
                                                                here go on, without these
    C                                                       ->  nothing: all processes go on
    L id port                                               ->  L id  + a TCP socket that listens on loopback, or
                                                                L id errno
                                                                R  + the writable directories and the network
                                                                namespace, once it is up

Code in the sandbox can neither signal nor trace it (PID 1, not dumpable) and shares no descriptor with it. Still, the
exit codes that it reports are only the sandbox's own claim about itself.
"""

# Imports only modules written in C: `socket`, `signal`, `json` would double the start time, which every sandbox pays.
from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]  # typeshed has only `signal`
import _socket
import os
import resource
import select
import sys

_PACKET = 1 << 18
_PR_SET_DUMPABLE = 4
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT, _LANDLOCK_BENEATH = 444, 445, 446, 1
_WRITABLE = ("/sandbox", "/home", "/tmp")
_DESCRIPTORS = 1 << 16
"""More than this process can have open."""
_VIEWS = "/data"
"""Only there if the operator opened a folder."""
_SIGNALS = [n for n in range(1, 65) if n not in (_signal.SIGKILL, _signal.SIGSTOP, 32, 33)]


class Itself(BaseException):
    """Unwinds a fork of PID 1 that goes on as the interpreter which PID 1 is: code must see none of these frames."""


class Init:
    """The control socket and the processes started for it."""

    def __init__(self, control: _socket.socket, ignored: list[int]) -> None:
        """`ignored` are the signals that this process ignores; programs get the default for them."""
        self._control = control
        self.ignored = ignored
        self.poll = select.poll()
        self._ids: dict[bytes, int] = {}
        self._starting: dict[int, bytes] = {}
        """Pipes of processes that do not run their programs yet: each is closed when that begins."""
        # Opened early: once this process is not dumpable, it cannot open its files below /proc for writing.
        self._oom_score = os.open("/proc/self/oom_score_adj", os.O_RDWR)
        self._own_score = os.read(self._oom_score, 8)
        self._expendable = b"%d" % min(int(self._own_score) + 500, 1000)

    def send(self, *fields: bytes, descriptors: list[int] | tuple[int, ...] = ()) -> None:
        rights = [
            (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in descriptors))
        ]
        self._control.sendmsg([b"\0".join(fields)], rights if descriptors else [])

    def ready(self) -> None:
        """Hands out descriptors of the network and of the writable directories; the server sees when those are full."""
        writable = (*_WRITABLE, _VIEWS) if os.path.isdir(_VIEWS) else _WRITABLE
        handed_out = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in writable]
        handed_out.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        self.send(b"R", descriptors=handed_out)
        for descriptor in handed_out:
            os.close(descriptor)

    def receive(self) -> bool:
        """Answers one request; False once the server is gone."""
        packet, ancillary, _, _ = self._control.recvmsg(_PACKET, _socket.CMSG_SPACE(12), _socket.MSG_CMSG_CLOEXEC)
        if not packet:
            return False
        descriptors = [
            int.from_bytes(data[i : i + 4], sys.byteorder) for _, _, data in ancillary for i in range(0, len(data), 4)
        ]
        kind, name, *fields = packet.split(b"\0")
        try:
            if kind == b"S":
                self._spawn(name, fields, descriptors)
            elif kind == b"Z":
                self._fork_itself(name, fields[0], descriptors)
            elif kind == b"K":
                self._kill(name, int(fields[0]))
            elif kind == b"A":
                self.send(b"A", name)
            elif kind == b"H":
                self._hold(fields)
            elif kind == b"C":
                self._signal_all(_signal.SIGCONT)
            elif kind == b"L":
                self._listen(name, int(fields[0]))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def reap(self) -> None:
        """Reports every ended process that was started here; other orphaned processes are only collected."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            name = next((name for name, known in self._ids.items() if known == pid), None)
            for told in list(self._starting):
                self.report(told)
            if name is not None and self._ids.pop(name, 0):
                self.send(b"X", name, b"%d" % os.waitstatus_to_exitcode(status))

    def _spawn(self, name: bytes, fields: list[bytes], descriptors: list[int]) -> None:
        cwd, count, *words = fields
        argv, env = words[: int(count)], words[int(count) :]
        environment = dict(entry.split(b"=", 1) for entry in env)
        try:
            # The child inherits this: when memory runs out, the kernel kills what the code started, not the sandbox.
            os.write(self._oom_score, self._expendable)
            os.chdir(cwd)
            program = _find(argv[0], environment.get(b"PATH", b""))
            if self._has_others():
                self._fork(name, program, argv, environment, descriptors)
            else:
                actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(descriptors)]
                self._ids[name] = os.posix_spawn(
                    program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=self.ignored
                )
                self.send(b"P", name)
        except OSError as error:
            self.send(b"F", name, b"%d" % (error.errno or 0))
        finally:
            os.write(self._oom_score, self._own_score)

    def _fork_itself(self, name: bytes, cwd: bytes, descriptors: list[int]) -> None:
        """Starts a copy of this process, which leaves `serve` with `Itself`."""
        os.write(self._oom_score, self._expendable)
        try:
            pid, error = os.fork(), 0
        except OSError as failure:
            pid, error = -1, failure.errno or 0
        if pid:
            os.write(self._oom_score, self._own_score)
            if error:
                self.send(b"F", name, b"%d" % error)
            else:
                self._ids[name] = pid
                self.send(b"P", name)
            return
        os.chdir(cwd)
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        descriptors.clear()
        _signal.set_wakeup_fd(-1)
        # As an interpreter that has just started has them.
        for number in (_signal.SIGHUP, _signal.SIGTERM, _signal.SIGCHLD):
            _signal.signal(number, _signal.SIG_DFL)
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        self._control.detach()
        os.closerange(3, _DESCRIPTORS)
        _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)
        raise Itself

    def _has_others(self) -> bool:
        """Whether there are processes that code has started."""
        return sum(map(str.isdigit, os.listdir("/proc"))) > 1 + len(self._ids)

    def _fork(
        self, name: bytes, program: bytes, argv: list[bytes], environment: dict[bytes, bytes], descriptors: list[int]
    ) -> None:
        """Starts a process that others can stop before it runs its program: `posix_spawn` would wait until then.

        It takes five times as long.
        """
        told, tell = os.pipe()
        try:
            pid = os.fork()
            if not pid:
                self._become(program, argv, environment, descriptors, tell)
        except OSError:
            os.close(told)
            raise
        finally:
            os.close(tell)
        os.set_blocking(told, False)
        self._ids[name], self._starting[told] = pid, name
        self.poll.register(told, select.POLLIN)

    def _become(
        self, program: bytes, argv: list[bytes], environment: dict[bytes, bytes], descriptors: list[int], tell: int
    ) -> None:
        """Turns this process, a child, into a program; else reports the errno and ends."""
        try:
            os.setsid()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
            for number in self.ignored:
                _signal.signal(number, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            os.execve(program, argv, environment)
        except OSError as error:
            os.write(tell, b"%d" % (error.errno or 0))
        finally:
            os._exit(127)

    def report(self, told: int) -> None:
        """Reports that a process runs its program, or why not, unless that was reported."""
        if told not in self._starting:
            return
        try:
            error = os.read(told, 16)
        except BlockingIOError:
            return
        self.poll.unregister(told)
        os.close(told)
        name = self._starting.pop(told)
        if error:
            del self._ids[name]
            self.send(b"F", name, error)
        else:
            self.send(b"P", name)

    def _kill(self, name: bytes, number: int) -> None:
        pid = self._ids.get(name)
        if pid is not None:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                try:  # noqa: SIM105 - importing contextlib would cost start time
                    os.kill(pid, number)  # it has no group of its own yet
                except ProcessLookupError:
                    pass

    def _hold(self, names: list[bytes]) -> None:
        self._signal_all(_signal.SIGSTOP)
        for name in self._ids:
            if name not in names:
                self._kill(name, _signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        try:  # noqa: SIM105 - importing contextlib would cost start time
            os.kill(-1, number)  # one call, so that no process can start another one meanwhile
        except ProcessLookupError:
            pass

    def _listen(self, name: bytes, port: int) -> None:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(64)
            self.send(b"L", name, descriptors=[listener.fileno()])
        except OSError as error:
            self.send(b"L", name, b"%d" % (error.errno or 0))
        listener.close()


def _find(program: bytes, path: bytes) -> bytes:
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        candidate = folder + b"/" + program
        if os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(2, "not found on PATH")


def _set_limits(limits: str) -> None:
    """Sets soft and hard limits such as `CORE=0,NOFILE=4096`; keeps a hard limit that is already lower."""
    for limit in filter(None, limits.split(",")):
        name, text = limit.split("=")
        number = getattr(resource, "RLIMIT_" + name)
        _, hard = resource.getrlimit(number)
        value = int(text) if hard == resource.RLIM_INFINITY else min(int(text), hard)
        # At the hard limit of processor time the kernel sends SIGKILL, which does not show the reason. So the soft
        # limit is one lower: there the kernel sends SIGXCPU.
        resource.setrlimit(number, (value, value + 1 if name == "CPU" and value != hard else value))


def _confine(rules: str) -> None:
    """Enforces Landlock rules, `attributes,flags,place=rights,...`, for this process and all that it starts."""
    attributes, flags, *places = rules.split(",")
    given = bytes.fromhex(attributes)
    ruleset = _call("syscall", _LANDLOCK_CREATE, given, len(given), 0)
    for place in places:
        path, rights = place.split("=")
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = int(rights).to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        _call("syscall", _LANDLOCK_ADD, ruleset, _LANDLOCK_BENEATH, rule, 0)
        os.close(descriptor)
    _call("syscall", _LANDLOCK_RESTRICT, ruleset, int(flags))
    os.close(ruleset)


def _call(function: str, *arguments: object) -> int:
    """Calls a function of the C library; ends the sandbox if the kernel refuses."""
    program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is this program itself
    result: int = _ctypes.call_function(_ctypes.dlsym(program, function), arguments)
    if result < 0:
        raise SystemExit(f"init: the kernel refused {function} {arguments[0]}")
    return result


def serve(control: _socket.socket, limits: str, rules: str) -> None:
    """Answers requests until the server is gone; raises `Itself` in a fork of this process that goes on as another."""
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
    init = Init(control, [number for number in _SIGNALS if _signal.getsignal(number) == _signal.SIG_IGN])
    # Otherwise the code, which has the same uid, could trace this process and read its /proc entries.
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    if rules:
        _confine(rules)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    init.ready()
    # Only after `ready`, which sends descriptors: the kernel refuses that while the uid has more descriptors in flight
    # than this process's limit on open files. Where sandboxes share a uid, one could keep another from starting.
    _set_limits(limits)
    init.poll.register(control.fileno(), select.POLLIN)
    init.poll.register(woken, select.POLLIN)
    while True:
        for descriptor, _ in init.poll.poll():
            if descriptor == woken:
                os.read(woken, 4096)
                init.reap()
            elif descriptor != control.fileno():
                init.report(descriptor)
            elif not init.receive():
                return


if __name__ == "__main__":
    given = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(given.fileno(), False)
    os.closerange(given.fileno() + 1, 64)
    serve(given, sys.argv[2], sys.argv[3])
