"""The result of a run: its status, exit code and notes, decided by what is visible from outside the sandbox."""

import signal
from collections.abc import Mapping

from ..backends.base import Fullness, Usage
from ..base.messages import Note, Step
from ..base.policy import Policy
from ..base.results import Output, Status
from ..base.text import whole_end, whole_start
from ..base.units import format_duration, format_size
from .requests import RunRequest
from .run import Outcome

_INTERRUPTED = 128 + signal.SIGINT
_KILLED = 128 + signal.SIGKILL
_HARMLESS = {17, 18, 23, 28}
"""Signals that end no program: SIGCHLD, SIGCONT, SIGURG, SIGWINCH. In sandboxes, they have the numbers of Linux."""
_LAST_SIGNAL = 64
_STOPPED = ("timeout", "cpu_limit", "output_limit", "cancelled")
"""Endings that the server caused."""
_STEPS: Mapping[Status, str] = {
    "out_of_memory": "use less data at once",
    "disk_limit": "delete files or write less",
    "inode_limit": "delete some or make fewer",
    "process_limit": "start fewer, or end some first",
}
"""The next step for each limit that `limits_hit` finds."""
_CAUSES = {
    "SIGSEGV": "the usual cause is an invalid memory access, or recursion without end",
    "SIGFPE": "the usual cause is a division of integers by zero",
    "SIGABRT": "the usual cause is abort(), a failed assert, or an exception that nothing caught",
}
"""What to look for in a program that a signal ended."""


def succeeded(outcome: Outcome) -> bool:
    """Whether the runner reported that the code ran to its end without an error."""
    return outcome.ending == "answered" and outcome.report is not None and outcome.report.status == "ok"


def overcrowded(fullness: Fullness, policy: Policy) -> bool:
    """Whether there are more files than allowed, if no file system enforces it; the sandbox must be dropped then."""
    return fullness.entries > policy.files


def limits_hit(usage: Usage, fullness: Fullness, policy: Policy) -> dict[Status, str]:
    """A message for each limit that was reached, by any process, as far as counters and folders show it."""
    lines: dict[Status, str] = {}
    if usage.oom_kills:
        lines["out_of_memory"] = f"the memory limit of {format_size(policy.memory)} was reached"
    if fullness.disk:
        lines["disk_limit"] = f"the disk limit of {format_size(policy.disk)} was reached"
    if fullness.entries >= policy.files:
        lines["inode_limit"] = f"the limit of {policy.files} files and folders was reached"
    if usage.pids_refused:
        cause = f"the limit of {policy.pids} processes and threads was reached, so starting more was refused"
        lines["process_limit"] = cause
    return lines


def status_of(outcome: Outcome, usage: Usage, fullness: Fullness, policy: Policy) -> Status:
    """The status of a run."""
    if usage.oom_kills and not succeeded(outcome):
        return "out_of_memory"
    match outcome.ending:
        case "timeout" | "cpu_limit" | "output_limit" | "cancelled":
            return outcome.ending
    if overcrowded(fullness, policy):
        return "inode_limit"
    if succeeded(outcome) or (outcome.ending == "exited" and outcome.exit_code == 0):
        return "ok"
    return _limit_hit(outcome, usage, fullness, policy)


def _limit_hit(outcome: Outcome, usage: Usage, fullness: Fullness, policy: Policy) -> Status:
    """The limit that failed code had reached; `error` if there is none."""
    hit = limits_hit(usage, fullness, policy)
    if "disk_limit" in hit:
        return "disk_limit"
    if "inode_limit" in hit:
        return "inode_limit"
    if fullness.large or outcome.exit_code == 128 + signal.SIGXFSZ:
        return "file_limit"
    if usage.cpu is None and outcome.exit_code == 128 + signal.SIGXCPU:
        return "cpu_limit"
    return "process_limit" if "process_limit" in hit else "error"


def finished(status: Status, outcome: Outcome) -> bool:
    """Whether code came to its end by itself, with or without an error, so that it has written what it wanted to.

    It did not if a signal ended the interpreter, or the program that the code was; what other programs it started
    is its own affair.
    """
    own = outcome.program and outcome.signalled is not False
    killed = _killed(exit_code_of(outcome)) and (own or outcome.ended)
    return status in ("ok", "error") and not killed


def exit_code_of(outcome: Outcome) -> int:
    """The exit code of a run: the code's own, or 128 plus the number of the signal that ended it."""
    if outcome.ending in _STOPPED:
        return _INTERRUPTED if outcome.alive or outcome.floods else _KILLED
    if outcome.report is not None:
        return outcome.report.exit_code
    if outcome.ending == "answered":
        return 1  # with a report that cannot be read
    return _KILLED if outcome.exit_code is None else outcome.exit_code


def notes_of(
    outcome: Outcome, usage: Usage, fullness: Fullness, status: Status, policy: Policy, request: RunRequest
) -> list[Note]:
    """One line for each limit that was hit and for state that was lost, with the next step.

    After the last run, no state is missed: only a signal that ended the interpreter is told.
    """
    notes = []
    hit = limits_hit(usage, fullness, policy)
    match status:
        case "timeout":
            cause = f"stopped after {format_duration(request.timeout)}"
            notes.append(Note(status, cause, Step.MORE_TIME, seconds=request.timeout))
        case "cpu_limit":
            cause = f"stopped after {format_duration(policy.cpu_time)} of processor time, counted over all processes"
            notes.append(Note(status, cause, "do less per call", seconds=policy.cpu_time))
        case "output_limit":
            cause = f"stopped after printing {format_size(policy.output)}"
            notes.append(Note(status, cause, "write to a file instead", limit=policy.output))
        case "file_limit":
            cause = f"the limit of {format_size(policy.largest_file)} for one file was reached"
            notes.append(Note(status, cause, "write less, or more than one file", limit=policy.largest_file))
    if usage.oom_kills and status != "out_of_memory":
        most = format_size(policy.memory)
        hit["out_of_memory"] = f"processes of the code killed at the memory limit of {most}: {usage.oom_kills}"
    # First the limit that decided the status, then the others that were reached.
    notes += [Note(one, hit[one], _STEPS[one]) for one in sorted(hit, key=lambda one: one != status)]
    if overcrowded(fullness, policy):
        notes.append(Note("lost", "there were more files and folders than allowed; variables and files are lost"))
    elif status == "out_of_memory" and not outcome.alive:
        notes.append(Note("lost", "variables and files are lost"))
    elif outcome.ended:
        ended = f"the interpreter ended with {_ending(outcome.exit_code)}"
        if not request.last:
            ended += "; variables are lost, files are kept"
        if not request.last or _killed(outcome.exit_code or 0):
            notes.append(Note("ended", ended, exit_code=outcome.exit_code))
    elif outcome.floods:
        ended = "the interpreter was ended, since processes of the code went on printing"
        notes.append(Note("ended", f"{ended}; variables are lost, files are kept"))
    elif outcome.ending == "answered" and outcome.report is None:
        cause = "the runner's report was not readable; the status and result of the code are unknown"
        notes.append(Note("unreadable", cause))
    elif outcome.report is not None and outcome.report.waits:
        cause = "what code left for the exit of its interpreter, such as an exit handler, does not happen in a session"
        notes.append(Note("waits", cause, Step.END_SESSION))
    elif status == "error" and outcome.ending == "answered" and outcome.program:
        notes += _notes_on_signal(outcome)
    elif outcome.ending == "lost":
        notes.append(Note("lost", "the sandbox ended while the code ran; variables and files are lost"))
    elif not outcome.alive:
        cause = "the code did not answer an interrupt and was killed; variables and files are lost"
        notes.append(Note("lost", cause))
    return notes


def excerpt(data: bytes, limit: int, omitted: int = 0) -> Output:
    """The text of one stream: its head and tail, `limit` bytes together, and how much between them was left out.

    Bytes that are not UTF-8, and NUL, become U+FFFD. `omitted` is what an earlier excerpt left out of the data.
    """
    if len(data) > limit:
        half = limit // 2
        head, tail = whole_end(data[:half]), whole_start(data[len(data) - half :])
        omitted += len(data) - len(_mark(omitted)) - len(head) - len(tail)
        data = head + _mark(omitted) + tail
    text = data.decode(errors="replace").replace("\0", "\ufffd")
    return Output(text, omitted, None if data == text.encode() else data)


def _mark(omitted: int) -> bytes:
    """What stands where so many bytes were left out."""
    return f"\n[... {format_size(omitted)} left out ...]\n".encode() if omitted else b""


def _killed(exit_code: int) -> bool:
    """Whether this is an exit code after a signal that ends programs."""
    return 0 < exit_code - 128 <= _LAST_SIGNAL and exit_code - 128 not in _HARMLESS


def _notes_on_signal(outcome: Outcome) -> list[Note]:
    """A note if a signal with a name ended a program: such a program seldom says so itself."""
    code = exit_code_of(outcome)
    if outcome.signalled is False or not _killed(code) or not (name := _signal_name(code)):
        return []
    how = "with" if outcome.signalled else "as after"
    return [Note("signal", f"the program ended {how} signal {name}", _CAUSES.get(name, ""), exit_code=code)]


def _signal_name(exit_code: int) -> str:
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""


def _ending(exit_code: int | None) -> str:
    name = _signal_name(exit_code or 0)
    return f"signal {name}" if name else f"exit code {exit_code}"
