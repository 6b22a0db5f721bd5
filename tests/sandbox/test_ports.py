"""Ports that programs are told of before they listen: nobody else's meanwhile."""

import contextlib
import errno
import socket

import pytest

from fairlead.sandbox.ports import Ports, reserved


def test_a_port_is_its_callers_from_before_the_program_listens_until_it_is_given_back():
    with reserved() as port:
        with pytest.raises(OSError, match="in use") as refused, socket.socket() as other:
            other.bind(("127.0.0.1", port))
        assert refused.value.errno == errno.EADDRINUSE
        for host in ("127.0.0.1", ""):  # of a program that is started again, and of one that listens on every address
            with (
                socket.create_server((host, port)) as program,
                socket.create_connection(("127.0.0.1", port)) as client,
                program.accept()[0] as accepted,
            ):
                client.sendall(b"here")
                assert accepted.recv(4) == b"here"
                client.close()  # first, so that no connection lingers on the port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_the_ports_of_one_cluster_differ():
    with contextlib.closing(Ports()) as ports:
        found = [ports.reserve() for _ in range(200)]
    assert len(set(found)) == 200
