"""A TCP proxy that misbehaves on request. Knows no protocol: Kafka, databases, object stores and webhooks all go through it.

    with Proxy(9092) as proxy:
        connect_to(proxy.port)
        proxy.now(cut_after(10_000))
        ...
        assert proxy.struck

A fault holds for connections that are open and for new ones, until the next `now`. Clients must reach the server through
the proxy only: a Kafka broker needs a listener whose advertised address is the proxy's.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

__all__ = [
    "Fault", "Proxy", "corrupt", "cut_after", "delay", "drop_response", "pass_", "reply", "rst", "stall", "throttle",
]  # fmt: skip

UP, DOWN = "up", "down"  # towards the server, towards the client
_CHUNK = 1 << 20  # taken at once: what came during a delay goes on together, so a delay is latency, not bandwidth
_LOOK_S = 0.01  # how soon a connection that is held back notices that the fault is over


@dataclass(frozen=True)
class Fault:
    """What happens to bytes on their way.

    Attributes:
        verb: which of the functions below made it.
        amount: seconds, bytes, or bytes a second.
        way: `up`, `down`, or empty for both.
        marker: the fault begins with the chunk (towards the server) that holds these bytes; empty: at once.
        times: connections that it strikes before it is spent; None: all of them.
        data: what the client is answered.
    """

    verb: str
    amount: float = 0
    way: str = ""
    marker: bytes = b""
    times: int | None = None
    data: bytes = b""


def pass_() -> Fault:
    """Nothing is wrong."""
    return Fault("pass")


def delay(seconds: float, way: str = DOWN) -> Fault:
    """Every chunk takes that much longer."""
    return Fault("delay", seconds, way)


def stall(way: str = "", after: int = 0) -> Fault:
    """Connections stay open and carry nothing: a black hole. What was held back goes on when the fault is over.

    Each of them passes so many bytes first, and what came together with the last of them.
    """
    return Fault("stall", after, way)


def rst(times: int | None = None) -> Fault:
    """Open connections are reset, new ones as soon as they are made."""
    return Fault("rst", times=times)


def cut_after(count: int, way: str = DOWN, times: int | None = None) -> Fault:
    """A connection is reset when that many bytes have gone that way, counted from now on, in the middle of whatever it is."""
    return Fault("cut_after", count, way, times=times)


def drop_response(marker: bytes = b"", times: int | None = 1) -> Fault:
    """The request gets through, the server does what it says, the answer does not come: the connection is reset instead."""
    return Fault("drop_response", 0, DOWN, marker, times)


def reply(data: bytes, marker: bytes = b"", times: int | None = 1) -> Fault:
    """The request does not get through: the client is answered this, and the connection ends."""
    return Fault("reply", 0, UP, marker, times, data)


def corrupt(at: int, way: str = DOWN, times: int | None = 1) -> Fault:
    """A bit of byte number `at` that goes that way on a connection, counted from now on, is flipped."""
    return Fault("corrupt", at, way, times=times)


def throttle(bytes_per_second: float, way: str = DOWN) -> Fault:
    """One byte at a time, each in a segment of its own, at that rate; 0: as fast as single bytes go."""
    return Fault("throttle", bytes_per_second, way)


class _Connection:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, writers: dict[str, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.moved = {DOWN: 0, UP: 0}  # bytes since the fault was set
        self.serial = -1  # of the fault that the counts belong to
        self.armed = False  # the marker was seen

    def reset(self) -> None:
        """End both sides with RST: closing with SO_LINGER of 0 s does that."""
        for writer in self.writers.values():
            with suppress(OSError):
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Listens on a port of 127.0.0.1 and passes on to a server. A context manager: it runs in a thread of its own.

    Args:
        port: of the server; the attribute `upstream` can be set later, before the first client comes.
        host: of the server.
        seed: of the bits that are flipped.

    Attributes:
        port: where clients connect to.
        struck: how often the current fault has struck: connections cut or reset, chunks held, changed or slowed down.
        connections: made so far.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", seed: int = 0) -> None:
        self.host, self.upstream = host, port
        self.port = self.struck = self.connections = 0
        self._fault, self._serial = pass_(), 0
        self._bits = random.Random(seed)
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()  # asyncio itself holds them weakly
        self._connecting: set[asyncio.Task[Any]] = set()
        self._broken: BaseException | None = None
        self._closing = False

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    def now(self, fault: Fault) -> None:
        """From now on this happens, until the next call; counts begin anew."""
        self._do(self._set(fault))

    def __enter__(self) -> Proxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(300)
        self._loop.close()
        if self._broken is not None:
            raise self._broken

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        # Not closed yet: asyncio (3.11) leaves connections open that were accepted and not begun by then (cpython, gh-109564).
        for listening in self._server.sockets:
            self._loop.remove_reader(listening)
        self._closing = True
        await self._set(pass_())
        while True:
            # Only what waits for the server is cancelled: a task that has not begun would never close its connection.
            for task in self._connecting:
                task.cancel()
            for connection in list(self._open):
                connection.reset()
            await asyncio.sleep(_LOOK_S)  # what was accepted just before has no task yet
            if not self._tasks and asyncio.all_tasks() == {asyncio.current_task()}:
                break
        self._server.close()
        await asyncio.sleep(_LOOK_S)  # closing a connection takes another round of the loop

    async def _set(self, fault: Fault) -> None:
        self._fault, self.struck, self._serial = fault, 0, self._serial + 1
        if fault.verb == "rst":
            for connection in list(self._open):
                self._strike(connection)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connecting.add(task)
        writers = {DOWN: writer}
        try:
            up_reader, writers[UP] = await asyncio.open_connection(self.host, self.upstream, limit=_CHUNK)
            self._connecting.discard(task)
            for side in writers.values():
                side.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(writers)
            self._open.add(connection)
            if self._closing:
                connection.reset()
            if self._fault.verb == "rst":
                self._strike(connection)
            await asyncio.gather(self._pump(connection, reader, UP), self._pump(connection, up_reader, DOWN))
            self._open.discard(connection)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()  # the server does not listen, or the proxy ends
        except Exception as error:  # a defect of the proxy must not look like a fault of the network
            self._broken = error
        finally:
            self._connecting.discard(task)
            self._tasks.discard(task)
            for side in writers.values():
                side.close()

    async def _pump(self, connection: _Connection, reader: asyncio.StreamReader, way: str) -> None:
        writer = connection.writers[way]
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                writer.write(await self._through(connection, way, chunk))
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()  # the other way may go on

    async def _through(self, connection: _Connection, way: str, chunk: bytes) -> bytes:
        """What is left of a chunk when the fault of the moment has had its way with it."""
        while (fault := self._fault).verb == "stall" and fault.way in ("", way) and self._moved(connection)[way] >= fault.amount:
            self.struck += 1
            await self._until_next()
        moved = self._moved(connection)
        before = moved[way]
        moved[way] += len(chunk)
        connection.armed = connection.armed or (way == UP and fault.marker in chunk)
        if fault.way not in ("", way) or not connection.armed or fault.times == 0:
            return chunk
        if fault.verb == "delay":
            self.struck += 1
            await self._until_next(fault.amount)
        elif fault.verb == "cut_after" and moved[way] >= fault.amount:
            connection.writers[way].write(chunk[: max(0, int(fault.amount) - before)])
            await asyncio.sleep(_LOOK_S)  # a reset discards what the other side has not received yet
            self._strike(connection)
            return b""
        elif fault.verb == "drop_response":
            self._strike(connection)
            return b""
        elif fault.verb == "reply":
            connection.writers[DOWN].write(fault.data)
            await connection.writers[DOWN].drain()
            await asyncio.sleep(_LOOK_S)  # a reset discards what the other side has not received yet
            self._strike(connection)
            return b""
        elif fault.verb == "corrupt" and before <= fault.amount < moved[way]:
            self._count()
            at = int(fault.amount) - before
            return chunk[:at] + bytes([chunk[at] ^ 1 << self._bits.randrange(8)]) + chunk[at + 1 :]
        elif fault.verb == "throttle":
            self.struck += 1
            return await self._slowly(connection.writers[way], chunk, fault.amount)
        return chunk

    def _moved(self, connection: _Connection) -> dict[str, int]:
        """Bytes that went either way on that connection since the fault was set."""
        if connection.serial != self._serial:
            connection.serial, connection.armed, connection.moved = self._serial, not self._fault.marker, {DOWN: 0, UP: 0}
        return connection.moved

    async def _until_next(self, seconds: float = float("inf")) -> None:
        """Wait until another fault is set, or that long."""
        serial, end = self._serial, self._loop.time() + seconds
        while serial == self._serial and (left := end - self._loop.time()) > 0:
            await asyncio.sleep(min(_LOOK_S, left))

    async def _slowly(self, writer: asyncio.StreamWriter, chunk: bytes, rate: float) -> bytes:
        serial = self._serial
        for at in range(len(chunk)):
            if serial != self._serial:
                return chunk[at:]
            writer.write(chunk[at : at + 1])  # TCP_NODELAY and nothing in the buffer: it is sent as it is
            await writer.drain()
            await asyncio.sleep(1 / rate if rate else 0)
        return b""

    def _strike(self, connection: _Connection) -> None:
        if self._fault.times != 0:
            self._count()
            connection.reset()

    def _count(self) -> None:
        self.struck += 1
        if self._fault.times is not None:
            self._fault = replace(self._fault, times=self._fault.times - 1)
