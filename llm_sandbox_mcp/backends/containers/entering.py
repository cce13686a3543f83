"""Enters the network of a container, from its own machine, and listens there on loopback.

A program: a process with threads cannot enter the user namespace that a network of an engine without root belongs to.
Its arguments are descriptors of that network and of the socket that takes the answer, and the port. The answer is an
error number of the kernel's, which is 0 where the socket that listens comes with it.
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
