"""The usual signal settings for a program, however the tests were started."""

import signal


def usual_signals() -> None:
    """Sets all signals to their defaults and unblocks them, in a process that is about to start a program.

    Under `nohup make test &`, SIGINT is ignored, and bash and Python keep ignoring it if it is ignored when they start.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
