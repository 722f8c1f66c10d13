"""The proxy does what it says: else a test through it proves nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy, corrupt, cut_after, delay, drop_response, pass_, rst, stall, throttle
from tests.patience import looks


@pytest.fixture
def served() -> Iterator[tuple[Proxy, list[bytes]]]:
    """A proxy before a server that echoes, and everything that the server was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server, Proxy(server.getsockname()[1]) as proxy:

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(65536):
                        heard.append(data)
                        connection.sendall(data)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield proxy, heard
        server.shutdown(socket.SHUT_RDWR)


def client(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 300)


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    got = b""
    while len(got) < len(data):
        more = connection.recv(65536)
        if not more:
            return got
        got += more
    return got


def test_it_passes_on_and_ends_both_ways(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, heard = served
    data = bytes(range(256)) * 4000
    with client(proxy) as one, client(proxy) as two:
        assert ask(one, b"a") == b"a"
        threading.Thread(target=two.sendall, args=(data,)).start()
        got = b""
        while len(got) < len(data):
            got += two.recv(65536)
        assert got == data
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    assert (proxy.connections, proxy.struck) == (2, 0) and heard


def test_reset_strikes_open_and_new_connections_until_it_is_over(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, _ = served
    with client(proxy) as open_one:
        assert ask(open_one, b"a") == b"a"
        proxy.now(rst())
        with pytest.raises(ConnectionResetError):
            open_one.recv(1)
    with pytest.raises(OSError), client(proxy) as new:  # while it connects, too, when that is fast
        ask(new, b"b" * 10)
        raise ConnectionResetError  # an end instead of a reset, when it is fast
    assert proxy.struck == 2
    proxy.now(pass_())
    with client(proxy) as later:
        assert ask(later, b"c") == b"c"


def test_cut_in_the_middle_of_an_answer(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, heard = served
    proxy.now(cut_after(7, times=1))
    with client(proxy) as one:
        one.sendall(b"0123456789")
        got = b""
        with pytest.raises(ConnectionResetError):
            while True:
                more = one.recv(100)
                got += more
                assert more
        assert got == b"0123456"
    assert b"".join(heard) == b"0123456789" and proxy.struck == 1
    with client(proxy) as two:
        assert ask(two, b"0123456789") == b"0123456789"  # spent


def test_lost_answer_to_a_request_that_got_through(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, heard = served
    proxy.now(drop_response(b"COMMIT"))
    with client(proxy) as one:
        assert ask(one, b"INSERT") == b"INSERT"
        one.sendall(b"COMMIT")
        with pytest.raises(ConnectionResetError):
            assert not one.recv(100)
    assert heard == [b"INSERT", b"COMMIT"] and proxy.struck == 1
    with client(proxy) as two:
        assert ask(two, b"COMMIT") == b"COMMIT"


def test_flipped_bits_and_slow_ways(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, heard = served
    with client(proxy) as one:
        proxy.now(corrupt(13))
        assert ask(one, b"\x00" * 9) == b"\x00" * 9
        got = ask(one, b"\x00" * 9)
        assert [byte.bit_count() for byte in got] == [0, 0, 0, 0, 1, 0, 0, 0, 0] and heard[-1] == b"\x00" * 9
        assert ask(one, b"\x00" * 9) == b"\x00" * 9
        proxy.now(delay(0.2))
        began = time.monotonic()
        assert ask(one, b"x") == b"x"
        assert time.monotonic() - began >= 0.2
        proxy.now(throttle(0))
        rounds, sizes = 0, [50]
        while max(sizes) == 50:  # all of them may have arrived before this thread runs again
            one.sendall(b"y" * 50)
            rounds, sizes = rounds + 1, []
            while sum(sizes) < 50:
                sizes.append(len(one.recv(100)))
        assert proxy.struck == rounds


def test_black_hole_keeps_the_connection_and_lets_everything_go_afterwards(served: tuple[Proxy, list[bytes]]) -> None:
    proxy, _ = served
    with client(proxy) as one, client(proxy) as two:
        proxy.now(stall())
        for each in (one, two):
            each.settimeout(0.3)
            each.sendall(b"late")
            with pytest.raises(TimeoutError):
                each.recv(10)
        proxy.now(pass_())
        for each in (one, two):
            each.settimeout(300)
            assert each.recv(10) == b"late"
        # Held back in both ways, and the answer only in one.
        proxy.now(stall("down"))
        one.sendall(b"again")
        for _ in looks(300, 0.01):
            if proxy.struck:
                break
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(10)
        assert proxy.struck == 1
        proxy.now(pass_())
        one.settimeout(300)
        assert one.recv(10) == b"again"
        # Some bytes first.
        proxy.now(stall("down", after=3))
        assert ask(one, b"123") == b"123"
        one.sendall(b"456")
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(10)


def test_server_that_is_not_there() -> None:
    with Proxy(1) as proxy, client(proxy) as one, pytest.raises(OSError):
        if not one.recv(1):
            raise ConnectionResetError
