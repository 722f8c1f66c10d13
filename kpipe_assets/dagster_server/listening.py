"""Listen on a port that no other user can take."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from kpipe.errors import KpipeError

__all__ = ["listen", "url"]

_PORTS = 50
_BACKLOG = 128


def listen(host: str, wanted: int) -> socket.socket:
    """Return a socket that listens on the port, or on the next free one.

    On Linux two sockets with SO_REUSEADDR may be bound to one port as long as neither listens. A port that is only bound can
    therefore be taken by another user; one with a listening socket cannot.

    Raises:
        KpipeError: no port is free, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(wanted, min(wanted + _PORTS, 65536)):
        with ExitStack() as unless_it_listens:
            listening = unless_it_listens.enter_context(socket.socket(family))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore old connections of an earlier start
            try:
                listening.bind((host, port))
                listening.listen(_BACKLOG)
            except PermissionError as error:
                raise KpipeError(f"--port {port}: reserved by the system", "choose a port of 1024 or more") from error
            except socket.gaierror as error:
                raise KpipeError(f"--host {host}: {error.strerror}", "give an address of this machine") from error
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise KpipeError(
                        f"--host {host}: not an address of this machine", "omit --host to listen on 127.0.0.1"
                    ) from error
                continue
            unless_it_listens.pop_all()
            return listening
    raise KpipeError(f"--port {wanted}: this port and the next {_PORTS - 1} are in use", "choose another with --port")


def url(host: str, port: int, tls: bool = False) -> str:
    """Return the URL of a server on this address."""
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
