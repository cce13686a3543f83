"""Enters the network namespace of a container on this machine, and listens there on loopback.

This is a separate program, since a process with threads cannot enter a user namespace, and the network of an engine
without root belongs to one. Its arguments are the descriptors of the network namespace and of the socket for the
answer, and the port. The answer is an errno; it is 0 if the listening socket comes with it.
"""

import errno
import socket
import sys

from .. import libc


def _enter(network: int) -> None:
    try:
        libc.setns(network, libc.CLONE_NEWNET)
    except PermissionError:
        libc.setns(libc.owner_of(network), libc.CLONE_NEWUSER)
        libc.setns(network, libc.CLONE_NEWNET)


def _main() -> None:
    network, answer, port = map(int, sys.argv[1:])
    with socket.socket(fileno=answer) as channel:
        try:
            _enter(network)
            with socket.create_server(("127.0.0.1", port)) as listening:
                socket.send_fds(channel, [b"0"], [listening.fileno()])
        except OSError as error:
            channel.send(b"%d" % (error.errno or errno.EIO))


if __name__ == "__main__":
    _main()
