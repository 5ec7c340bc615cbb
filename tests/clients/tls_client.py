#!/usr/bin/env python3
"""TLS: certificates, refusals, reloading, channel binding, other machines. Starts servers of its own.

WEFT_BIN is the server's binary; host and port, as the other scripts take them, are ignored.
needs: openssl psql; unshare for clients that are not on a loopback address; psycopg2 and asyncpg if there.
"""

import hashlib
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings

BIN = os.environ["WEFT_BIN"]
SSL_REQUEST = struct.pack("!II", 8, 80877103)
STARTUP_TIMEOUT = 4


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A certificate authority, and certificates of it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.cert = f"{folder}/{name}.crt"
        self.key = f"{folder}/{name}.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)
        openssl("req", "-x509", "-new", "-key", self.key, "-days", "30", "-subj", f"/CN={name}",
                "-out", self.cert)

    def issue(self, name, days=30, key=("ecparam", "-name", "prime256v1", "-genkey", "-noout")):
        """A certificate for localhost; the paths of it and of its key."""
        base = f"{self.folder}/{name}"
        openssl(*key, "-out", base + ".key")
        os.chmod(base + ".key", 0o600)
        openssl("req", "-new", "-key", base + ".key", "-subj", "/CN=localhost", "-out", base + ".csr")
        with open(base + ".ext", "w") as out:
            out.write("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.9.9.9\n")
        openssl("x509", "-req", "-in", base + ".csr", "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                "-days", str(days), "-extfile", base + ".ext", "-out", base + ".crt")
        return base + ".crt", base + ".key"


class Server:
    """A running server."""

    def __init__(self, folder, *arguments, listen="127.0.0.1:0", prefix=()):
        self.log = tempfile.NamedTemporaryFile(dir=folder, suffix=".log", delete=False).name
        self.errors = open(self.log, "w")
        self.process = subprocess.Popen(
            [*prefix, BIN, "serve", "--data", tempfile.mkdtemp(dir=folder), "--listen", listen,
             "--startup-timeout", str(STARTUP_TIMEOUT), *arguments],
            stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.port = None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                break

    def said(self):
        with open(self.log) as text:
            return text.read()

    def hang_up(self, expected):
        """SIGHUP, until the server has said `expected` once more."""
        before = self.said().count(expected)
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.said().count(expected) > before, expected)

    def __enter__(self):
        assert self.port, self.said()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def psql(self, sql="select 1", password=None, **options):
        """The exit status of psql, and what it printed."""
        settings = {"host": "localhost", "hostaddr": "127.0.0.1", "port": self.port, "user": "postgres",
                    "dbname": "postgres", **options}
        info = " ".join(f"{name}='{value}'" for name, value in settings.items())
        environment = {**os.environ, "PGPASSWORD": password or ""}
        ran = subprocess.run(["psql", "-XAtqc", sql, info], capture_output=True, text=True, env=environment,
                             timeout=120)
        return ran.returncode, (ran.stdout + ran.stderr).strip()

    def ok(self, sql="select 1", **options):
        status, text = self.psql(sql, **options)
        assert status == 0, text
        return text

    def refused(self, words, **options):
        status, text = self.psql(**options)
        assert status != 0, f"accepted: {text}"
        assert words in text, text

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


def eventually(holds, what):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


def context(authority, **limits):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(authority.cert)
    for name, value in limits.items():
        setattr(made, name, value)
    return made


def encrypted(server, authority, made=None):
    """A TLS connection, before its startup packet."""
    plain = server.raw()
    plain.sendall(SSL_REQUEST)
    assert plain.recv(1) == b"S"
    return (made or context(authority)).wrap_socket(plain, server_hostname="localhost")


def alerted(words, connect):
    """The server ends the handshake with an alert."""
    try:
        connect()
    except ssl.SSLError as error:
        assert words in str(error).lower().replace("_", " "), error
        return
    raise AssertionError(f"accepted instead of {words}")


def startup(**pairs):
    body = struct.pack("!I", 3 << 16)
    for name, value in {"user": "postgres", "database": "postgres", **pairs}.items():
        body += f"{name}\0{value}\0".encode()
    body += b"\0"
    return struct.pack("!I", len(body) + 4) + body


def message(tag, body=b""):
    return tag + struct.pack("!I", len(body) + 4) + body


def exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError(data)
        data += more
    return data


def read_until(stream, last):
    """Messages up to one of the tag `last`."""
    messages = []
    while not messages or messages[-1][0] != last:
        tag = exactly(stream, 1)
        messages.append((tag, exactly(stream, struct.unpack("!I", exactly(stream, 4))[0] - 4)))
    return messages


def everything(stream):
    data = b""
    try:
        while more := stream.recv(65536):
            data += more
    except (ConnectionError, ssl.SSLError):
        pass
    return data


STAT = "select ssl, version, cipher, bits, client_dn from pg_stat_ssl where pid = pg_backend_pid()"


def test_modes(work):
    authority = work.authority
    other = Authority(work.folder, "stranger")
    with Server(work.folder, *work.files(authority.issue("modes"))) as server:
        assert server.ok("show ssl", sslmode="disable") == "on"
        assert server.ok(STAT, sslmode="disable") == "f||||"
        for mode in ("allow", "prefer", "require"):
            server.ok(sslmode=mode)
        for mode in ("verify-ca", "verify-full"):
            shown = server.ok(STAT, sslmode=mode, sslrootcert=authority.cert)
            assert shown.startswith("t|TLSv1.3|TLS_AES_256"), shown
            server.refused("certificate verify failed", sslmode=mode, sslrootcert=other.cert)
        full = {"sslmode": "verify-full", "sslrootcert": authority.cert}
        server.refused("does not match host name", host="elsewhere", **full)
        twelve = server.ok(STAT, sslmode="require", ssl_max_protocol_version="TLSv1.2")
        assert twelve == "t|TLSv1.2|ECDHE-ECDSA-AES256-GCM-SHA384|256|", twelve
        both = server.ok("select count(*) from pg_stat_ssl", sslmode="require")
        assert both == "1", both
        server.refused("cannot be changed", sql="set ssl = off")
        assert server.ok("select setting from pg_settings where name = 'ssl'") == "on"
        with warnings.catch_warnings(action="ignore"):
            versions = ssl.TLSVersion
            old = context(authority, minimum_version=versions.TLSv1, maximum_version=versions.TLSv1_1)
        old.set_ciphers("ALL:@SECLEVEL=0")
        alerted("alert", lambda: encrypted(server, authority, old))
    with Server(work.folder) as server:
        assert server.ok("show ssl") == "off"
        server.ok(sslmode="prefer")
        server.refused("server does not support SSL", sslmode="require")


def test_key_types(work):
    for name, key in (
        ("rsa", ("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")),
        ("p384", ("ecparam", "-name", "secp384r1", "-genkey", "-noout")),
        ("ed25519", ("genpkey", "-algorithm", "ed25519")),
    ):
        pair = work.authority.issue(name, key=key)
        with Server(work.folder, *work.files(pair), *work.password("secret")) as server:
            options = {"sslmode": "verify-full", "sslrootcert": work.authority.cert, "password": "secret"}
            server.ok(channel_binding="require", **options)
            server.ok(channel_binding="disable", **options)


def test_expired(work):
    pair = work.authority.issue("expired", days=0)
    time.sleep(1.1)
    with Server(work.folder, *work.files(pair)) as server:
        server.refused("certificate", sslmode="verify-full", sslrootcert=work.authority.cert)
        server.ok(sslmode="require")


def test_passwords(work):
    with Server(work.folder, *work.files(work.pair), *work.password("secret")) as server:
        full = {"sslmode": "verify-full", "sslrootcert": work.authority.cert}
        server.ok(password="secret", channel_binding="require", **full)
        server.ok(password="secret", channel_binding="disable", **full)
        server.ok(password="secret", sslmode="disable")
        server.refused("password authentication failed", password="Secret", channel_binding="require", **full)
        server.refused("password authentication failed", password="Secret", sslmode="disable")
        plain = {"password": "secret", "sslmode": "disable"}
        server.refused("channel binding required", channel_binding="require", **plain)
        server.ok("create role ann login password 'pw'", password="secret", **full)
        assert server.ok("select count(*) from pg_stat_ssl", user="ann", password="pw", **full) == "1"
        # A client that believes that the server cannot bind, where it can, is being lied to.
        stream = encrypted(server, work.authority)
        stream.sendall(startup())
        offered = exactly(stream, struct.unpack("!I", exactly(stream, 5)[1:])[0] - 4)
        assert offered[4:].split(b"\0")[:2] == [b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"], offered
        first = b"y,,n=,r=abcdefgh"
        stream.sendall(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first))
        assert b"08P01" in everything(stream)


def test_early_bytes(work):
    """CVE-2021-23214: plain text that came behind the SSLRequest is not taken for the encrypted client's."""
    with Server(work.folder, *work.files(work.pair)) as server:
        stream = server.raw()
        stream.sendall(SSL_REQUEST + startup())
        answer = everything(stream)
        assert b"08P01" in answer and b"received unencrypted data after SSL request" in answer, answer
        # Behind the answer it is a broken handshake.
        stream = server.raw()
        stream.sendall(SSL_REQUEST)
        assert stream.recv(1) == b"S"
        stream.sendall(startup() + message(b"Q", b"create table stuffed ()\0"))
        answer = everything(stream)
        assert answer[:1] in (b"", b"\x15"), answer
        assert server.ok("select count(*) from pg_class where relname = 'stuffed'") == "0"
        # A second request, encrypted, is no request.
        stream = encrypted(server, work.authority)
        stream.sendall(SSL_REQUEST)
        assert b"unsupported frontend protocol 1234.5679" in everything(stream)


def test_broken_handshakes(work):
    with Server(work.folder, *work.files(work.pair)) as server:
        hello = client_hello(work.authority)
        silent = []
        for bytes_sent in (b"", b"\x16", hello[:40], hello):
            stream = server.raw()
            stream.sendall(SSL_REQUEST)
            assert stream.recv(1) == b"S"
            stream.sendall(bytes_sent)
            silent.append(stream)
        dripping = server.raw()
        dripping.sendall(SSL_REQUEST)
        assert dripping.recv(1) == b"S"
        began = time.monotonic()
        # Others are served meanwhile.
        server.ok(sslmode="require")
        for garbage in (os.urandom(300), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70000,
                        hello[:60] + os.urandom(400)):
            stream = server.raw()
            stream.sendall(SSL_REQUEST)
            assert stream.recv(1) == b"S"
            try:
                stream.sendall(garbage)
            except ConnectionError:
                pass
            assert everything(stream)[:1] in (b"", b"\x15")
        # A client that sends a byte now and then gets no more time than one that sends nothing.
        try:
            for byte in hello * 100:
                dripping.sendall(bytes([byte]))
                time.sleep(0.1)
                if time.monotonic() - began > 4 * STARTUP_TIMEOUT:
                    raise AssertionError("the handshake has no limit")
        except ConnectionError:
            pass
        for stream in silent:
            everything(stream)
        assert time.monotonic() - began < 5 * STARTUP_TIMEOUT
        server.ok(sslmode="require")


def client_hello(authority):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def test_direct(work):
    with Server(work.folder, *work.files(work.pair)) as server:
        made = context(work.authority)
        made.set_alpn_protocols(["postgresql"])
        stream = made.wrap_socket(server.raw(), server_hostname="localhost")
        assert stream.selected_alpn_protocol() == "postgresql"
        # The first query comes with the login: nothing else will wake the server for it.
        stream.sendall(startup() + message(b"Q", b"select 41 + 1\0"))
        read_until(stream, b"Z")
        assert (b"D", b"\0\x01\0\0\0\x0242") in read_until(stream, b"Z")
        stream = context(work.authority).wrap_socket(server.raw(), server_hostname="localhost")
        assert b"without ALPN protocol negotiation" in everything(stream)
        made.set_alpn_protocols(["h2"])
        name = "localhost"
        alerted("no application protocol", lambda: made.wrap_socket(server.raw(), server_hostname=name))


def test_reload(work):
    first, second = work.authority.issue("first"), work.authority.issue("second")
    cert, key = f"{work.folder}/live.crt", f"{work.folder}/live.key"

    def put(pair):
        shutil.copy(pair[0], cert)
        shutil.copy(pair[1], key)
        os.chmod(key, 0o600)

    def shown(server):
        return encrypted(server, work.authority).getpeercert()["serialNumber"]

    put(first)
    with Server(work.folder, *work.files((cert, key))) as server:
        before = shown(server)
        stream = encrypted(server, work.authority)
        stream.sendall(startup())
        read_until(stream, b"Z")
        put(second)
        assert shown(server) == before, "files are read at SIGHUP only"
        server.hang_up("certificate and key reloaded")
        after = shown(server)
        assert after != before
        stream.sendall(message(b"Q", b"select 1\0"))
        read_until(stream, b"Z")
        # Half of a new pair: the old one stays.
        shutil.copy(first[1], key)
        server.hang_up("the old certificate and key stay in use")
        assert "does not belong to the certificate" in server.said()
        assert shown(server) == after
        os.chmod(key, 0o644)
        server.hang_up("has group or world access")
        os.remove(cert)
        server.hang_up("the old certificate and key stay in use")
        assert shown(server) == after
        put(first)
        server.hang_up("certificate and key reloaded")
        assert shown(server) == before
    with Server(work.folder) as server:
        server.hang_up("nothing to reload")
        server.ok()


def test_bad_files(work):
    cert, key = work.pair
    other = work.authority.issue("other")[1]

    def fails(words, *arguments, hide=()):
        data = f"{work.folder}/none"
        ran = subprocess.run([BIN, "serve", "--data", data, "--listen", "127.0.0.1:0", *arguments],
                             capture_output=True, text=True, timeout=60)
        assert ran.returncode != 0 and words in ran.stderr, ran.stderr
        for secret in hide:
            assert secret not in ran.stderr, ran.stderr
        assert not os.path.exists(f"{work.folder}/none"), "the database was opened first"

    fails("cannot read", "--tls-cert", f"{work.folder}/absent", "--tls-key", key)
    fails("cannot read", "--tls-cert", cert, "--tls-key", f"{work.folder}/absent")
    fails("does not belong to the certificate", "--tls-cert", cert, "--tls-key", other)
    fails("no certificate", "--tls-cert", key, "--tls-key", key)
    fails("no private key", "--tls-cert", cert, "--tls-key", work.private_copy(cert))
    fails("--tls-key", "--tls-cert", cert)
    fails("--tls-cert", "--tls-key", key)
    fails("not a regular file", "--tls-cert", work.folder, "--tls-key", key)
    text = open(key).read()
    lines = text.splitlines()
    broken = work.private_copy(key, lines[0] + "\n!!" + lines[1] + "\n" + lines[-1] + "\n")
    fails("is not in PEM format", "--tls-cert", cert, "--tls-key", broken, hide=lines[1:-1])
    torn = work.private_copy(key, "\n".join(lines[:-1]) + "\n")
    fails("private key file", "--tls-cert", cert, "--tls-key", torn, hide=lines[1:-1])
    readable = work.private_copy(key)
    os.chmod(readable, 0o644)
    fails("has group or world access", "--tls-cert", cert, "--tls-key", readable)


def test_bulk(work):
    """Much data both ways, a client that reads late, and cancelling."""
    with Server(work.folder, *work.files(work.pair)) as server:
        value = lambda i: hashlib.sha256(str(i).encode()).hexdigest() * 4
        text = "".join(f"{i}\t{value(i)}\n" for i in range(60_000))
        options = {"sslmode": "require"}
        server.ok("create table big (id int primary key, v text)", **options)
        info = f"host=localhost port={server.port} user=postgres dbname=postgres sslmode=require"
        ran = subprocess.run(["psql", "-XAtqc", "copy big from stdin", info], input=text, text=True,
                             capture_output=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        back = server.ok("copy (select * from big order by id) to stdout", **options)
        assert back + "\n" == text
        stream = encrypted(server, work.authority)
        stream.sendall(startup())
        key = next(body for tag, body in read_until(stream, b"Z") if tag == b"K")
        query = b"select v from big\0"
        stream.sendall(message(b"Q", query))
        time.sleep(1)
        server.ok(**options)
        rows = sum(tag == b"D" for tag, _ in read_until(stream, b"Z"))
        assert rows == 60_000, rows
        # Many small statements in one write, and statements cut anywhere.
        many = message(b"Q", b"select 1\0") * 500
        for piece in (len(many), 1000, 7):
            writer = threading.Thread(target=lambda: [stream.sendall(many[at:at + piece])
                                                      for at in range(0, len(many), piece)])
            writer.start()
            for _ in range(500):
                assert read_until(stream, b"Z")[1] == (b"D", b"\0\x01\0\0\0\x011")
            writer.join()
        # A cancel request over TLS.
        stream.sendall(message(b"Q", b"select count(*) from big a, big b, big c\0"))
        time.sleep(0.5)
        cancel = encrypted(server, work.authority)
        cancel.sendall(struct.pack("!II", 16, 80877102) + key)
        assert everything(cancel) == b""
        assert any(tag == b"E" and b"57014" in body for tag, body in read_until(stream, b"Z"))
        # The end of the session is said in TLS, too.
        stream.sendall(message(b"X"))
        assert stream.recv(1) == b""


def test_drivers(work):
    try:
        import asyncio

        import asyncpg
        import psycopg2
    except ImportError:
        print("SKIPPED: drivers: no psycopg2 or asyncpg")
        return
    with Server(work.folder, *work.files(work.pair), *work.password("secret")) as server:
        where = {"host": "localhost", "port": server.port, "user": "postgres", "password": "secret"}
        with psycopg2.connect(dbname="postgres", sslmode="verify-full", sslrootcert=work.authority.cert,
                              channel_binding="require", **where) as connection:
            cursor = connection.cursor()
            cursor.execute(STAT)
            assert cursor.fetchone()[:2] == (True, "TLSv1.3")

        async def run():
            connection = await asyncpg.connect(database="postgres", ssl=context(work.authority), **where)
            row = await connection.fetchrow(STAT)
            assert row["ssl"] and row["version"] == "TLSv1.3"
            await connection.close()

        asyncio.run(run())


def test_other_machines(work):
    """In a network of its own, where 10.9.9.9 is the machine's address."""
    if os.environ.get("WEFT_OTHER_NETWORK") != "1":
        inside = 'ip link set lo up && ip addr add 10.9.9.9/32 dev lo && exec "$0" "$@"'
        check = subprocess.run(["unshare", "-rn", "sh", "-c", inside, "true"], capture_output=True, text=True)
        if check.returncode != 0:
            print(f"SKIPPED: other machines: no network namespace: {check.stderr.strip()}")
            return
        again = [sys.executable, __file__, "-k", "other_machines"]
        ran = subprocess.run(["unshare", "-rn", "sh", "-c", inside, *again],
                             env={**os.environ, "WEFT_OTHER_NETWORK": "1"})
        assert ran.returncode == 0
        return

    def fails(words, *arguments):
        data = tempfile.mkdtemp(dir=work.folder)
        ran = subprocess.run([BIN, "serve", "--data", data, "--listen", "0.0.0.0:0", *arguments],
                             capture_output=True, text=True, timeout=60)
        assert ran.returncode != 0 and words in ran.stderr, ran.stderr

    fails("needs TLS")
    fails("needs TLS", *work.password("secret"))
    fails("no role has a password", *work.files(work.pair))
    with Server(work.folder, *work.files(work.pair), *work.password("secret"), listen="0.0.0.0:0") as server:
        there = {"hostaddr": "10.9.9.9", "password": "secret"}
        words = ('no pg_hba.conf entry for host "10.9.9.9", user "postgres", database "postgres", '
                 "no encryption")
        server.refused(words, sslmode="disable", **there)
        server.refused(words, sslmode="disable", hostaddr="10.9.9.9", user="postgres")
        full = {"sslmode": "verify-full", "sslrootcert": work.authority.cert}
        server.ok(channel_binding="require", **full, **there)
        # libpq tries without TLS first, and again with it.
        assert server.ok(STAT, sslmode="allow", **there).startswith("t|")
        server.ok(sslmode="disable", password="secret")
        server.refused("password authentication failed", hostaddr="10.9.9.9", password="x", **full)
        # Without passwords only this machine's clients come in.
        server.ok("create role guest login; alter role postgres password null", **full, **there)
        words = 'database "postgres", SSL encryption'
        server.refused(words, **full, **there)
        server.refused(words, hostaddr="10.9.9.9", user="guest", **full)
        server.ok(sslmode="disable")


def test_guide(work):
    """The commands of docs/guide/administration.md, in order, on another port."""
    guide = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/guide/administration.md")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(dir=work.folder)
    os.makedirs(f"{folder}/bin")
    os.symlink(os.path.abspath(BIN), f"{folder}/bin/weft")
    text = open(guide).read()
    blocks = [block.split("```")[0] for block in text.split("```sh\n")[1:]]
    assert len(blocks) >= 6, blocks
    # Started in the background, the server needs a moment.
    ready = "for _ in $(seq 100); do grep -q '^listening on' said && break; sleep 0.1; done\n"
    script = "set -e\n" + "".join(blocks)
    script = script.replace("--tls-key server.key &\n", "--tls-key server.key > said 2> log &\n" + ready)
    script = script.replace("5433", str(port))
    script += "for _ in $(seq 100); do grep -q reloaded log && break; sleep 0.1; done\n"
    script += "grep -q 'certificate and key reloaded' log\nkill $!\nwait $!\n"
    ran = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120,
                         env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "TLSv1.3" in ran.stdout, ran.stdout


class Work:
    def __init__(self, folder):
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.pair = self.authority.issue("server")
        self.copies = 0

    def files(self, pair):
        return ["--tls-cert", pair[0], "--tls-key", pair[1]]

    def password(self, password):
        path = f"{self.folder}/password"
        with open(path, "w") as out:
            out.write(password + "\n")
        return ["--password-file", path]

    def private_copy(self, path, text=None):
        self.copies += 1
        copy = f"{self.folder}/copy-{self.copies}.key"
        with open(copy, "w") as out:
            out.write(open(path).read() if text is None else text)
        os.chmod(copy, 0o600)
        return copy


def main():
    wanted = sys.argv[sys.argv.index("-k") + 1] if "-k" in sys.argv else ""
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_") and wanted in name]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Work(folder)
        for name, test in tests:
            began = time.monotonic()
            try:
                test(work)
                print(f"{name} ok ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"{name} FAILED", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
