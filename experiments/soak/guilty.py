"""Clients that misbehave beside a load, each in its own way, and keep what the server told them.

They speak the protocol themselves: a driver would read, or say goodbye. Whoever was sent away begins again.
"""

import collections
import socket
import struct
import threading
import time

# What a client hears instead of a SQLSTATE.
CLOSED, FINE = "closed", "00000"
# More than the buffers of both sockets hold.
MUCH = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)"


class Connection:
    """One connection; `states` are the SQLSTATEs of the errors that came."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.rest, self.states = b"", []
        body = struct.pack("!i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self.read_until(b"Z")

    def send(self, tag, body):
        self.socket.sendall(tag + struct.pack("!i", len(body) + 4) + body)

    def message(self):
        """The next message; raises EOFError at the end."""
        while True:
            if len(self.rest) >= 5:
                end = 1 + struct.unpack("!i", self.rest[1:5])[0]
                if len(self.rest) >= end:
                    tag, body, self.rest = self.rest[:1], self.rest[5:end], self.rest[end:]
                    return tag, body
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError
            self.rest += more

    def read_until(self, tags):
        while True:
            tag, body = self.message()
            if tag == b"E":
                fields = body.split(b"\0")
                self.states += [field[1:].decode() for field in fields if field[:1] == b"C"]
            if tag in tags:
                return

    def query(self, sql):
        """The SQLSTATE that it ends with."""
        before = len(self.states)
        self.send(b"Q", sql.encode() + b"\0")
        self.read_until((b"Z", b"G"))
        return self.states[-1] if len(self.states) > before else FINE

    def told(self, until):
        """What the server says to a client that says nothing; None if that is nothing up to `until`."""
        try:
            while time.monotonic() < until:
                self.socket.settimeout(max(0.1, min(1.0, until - time.monotonic())))
                try:
                    self.read_until(())
                except TimeoutError:
                    continue
        except (EOFError, ConnectionError):
            return self.states[-1] if self.states else CLOSED
        return None

    def vanish(self):
        """Gone without goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Guilty(threading.Thread):
    """A client of one kind, until `end`. `heard` counts what it was told, `first` when that was."""

    def __init__(self, name, misbehave, port, end):
        super().__init__(name=name, daemon=True)
        self.misbehave, self.port, self.end = misbehave, port, end
        self.began, self.first = time.monotonic(), {}
        self.heard, self.failure = collections.Counter(), None

    def run(self):
        try:
            while time.monotonic() < self.end:
                said = self.misbehave(Connection(self.port), self.end)
                if said is not None:
                    self.heard[said] += 1
                    self.first.setdefault(said, time.monotonic() - self.began)
        except Exception as error:  # whatever it is, the report must say it
            self.failure = repr(error)


def keeps_a_snapshot(connection, end):
    """Idle in a REPEATABLE READ transaction to the end; only then does it ask."""
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgbench_branches")
    said = connection.told(end - 5) or connection.query("SELECT count(*) FROM pgbench_branches")
    time.sleep(max(0.0, end - time.monotonic()))
    return said


def stalls_in_copy(connection, end):
    connection.query("COPY aside FROM STDIN")
    connection.send(b"d", b"1\t")
    return connection.told(end)


def does_not_read(limit_s):
    """`limit_s`: how long the server puts up with it."""

    def misbehave(connection, end):
        connection.send(b"Q", MUCH.encode() + b"\0")
        time.sleep(max(0.0, min(limit_s + 10, end - time.monotonic())))
        if time.monotonic() >= end:
            return None
        connection.socket.settimeout(60)
        try:
            connection.read_until((b"Z",))
        except (EOFError, ConnectionError):
            return connection.states[-1] if connection.states else CLOSED
        return FINE

    return misbehave


def holds_a_lock(number):
    def misbehave(connection, end):
        connection.query(f"BEGIN; UPDATE aside SET a = a + 1 WHERE id = {number}")
        return connection.told(end)

    return misbehave


def idles_without_locks(connection, end):
    connection.query("BEGIN; SELECT 1")
    said = connection.told(end - 5) or connection.query("COMMIT")
    time.sleep(max(0.0, end - time.monotonic()))
    return said


def reconnects(connection, _end):
    said = connection.query("SELECT 1")
    connection.vanish()
    time.sleep(0.05)
    return said


def all_of(port, end, limits):
    """One of each kind, started; what the server must have told each, where the run is long enough."""
    kinds = [
        ("snapshot held", keeps_a_snapshot, "72000"),
        ("stalls in COPY", stalls_in_copy, "25P03"),
        ("does not read", does_not_read(limits["write_timeout"]), CLOSED),
        ("lock held", holds_a_lock(1), "25P03"),
        ("lock held too", holds_a_lock(2), "25P03"),
        ("idle without locks", idles_without_locks, FINE),
        ("reconnects", reconnects, FINE),
        ("reconnects too", reconnects, FINE),
    ]
    started = []
    for name, misbehave, wanted in kinds:
        client = Guilty(name, misbehave, port, end)
        client.start()
        started.append((client, wanted))
    return started
