"""Scratch servers on loopback that take turns: PostgreSQL 15 and `weft serve`, loaded by pgbench and psql."""

import os
import pathlib
import pwd
import re
import signal
import socket
import subprocess
import sys
import time

PG_BIN = pathlib.Path(os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"the server on port {port} ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"no server on port {port} after {seconds} s")


class Server:
    """A contender: a process that answers on a port, and at `host`, an address or a socket file's folder."""

    def __init__(self, name, process, port, host):
        self.name, self.process, self.port, self.host = name, process, port, host

    def pgbench(self, *arguments, synchronous_commit=None):
        environment = dict(os.environ)
        if synchronous_commit is not None:
            environment["PGOPTIONS"] = f"-c synchronous_commit={synchronous_commit}"
        place = ["-h", str(self.host), "-p", str(self.port), "-U", "postgres"]
        command = ["pgbench", *place, *arguments, "postgres"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def psql(self, *arguments):
        """What psql prints, of the first error on nothing but the error."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        command = ["psql", "--no-psqlrc", "-At", "-v", "ON_ERROR_STOP=1", *place, *arguments, "postgres"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(command)}\n{done.stderr}")
        return done.stdout

    def shown(self, names):
        """Weft's own counters since it started, by name."""
        asked = [word for name in names for word in ("-c", f"SHOW weft.{name}")]
        return dict(zip(names, map(float, self.psql(*asked).split())))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start_postgres(directory, host):
    data = directory / "postgres"
    data.mkdir()
    as_user = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(directory, user.pw_uid, user.pw_gid)
        os.chown(data, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": directory}
    initdb = [PG_BIN / "initdb", "-D", data, "-U", "postgres", "-A", "trust"]
    subprocess.run(initdb, check=True, **quiet, **as_user)
    port = free_port()
    command = [PG_BIN / "postgres", "-D", data, "-p", str(port), "-k", directory, "-c", "shared_buffers=1GB"]
    process = subprocess.Popen(command, **quiet, **as_user)
    wait_for_port(port, process)
    time.sleep(2)
    return Server("postgresql", process, port, host)


def start_weft(directory, host, binary, *more, name="weft"):
    """`more` are words behind `weft serve`."""
    port = free_port()
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", directory / name, *more]
    if host == directory:
        command += ["--socket-dir", directory]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for_port(port, process)
    return Server(name, process, port, host)


def tps(output):
    """Transactions a second that pgbench printed; an error if one failed for good."""
    failed = re.search(r"number of failed transactions: (\d+)", output)
    if failed and int(failed.group(1)) > 0:
        sys.exit(f"failed transactions:\n{output}")
    return float(re.search(r"tps = ([0-9.]+) \(without", output).group(1))
