"""Signals as programs usually find them, however the tests were started."""

import signal


def usual_signals() -> None:
    """Ignores and blocks none. For a process that is about to start a program: bash and Python heed no SIGINT that they
    find ignored, as they do below `nohup make test &`."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
