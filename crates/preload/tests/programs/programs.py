"""The programs, each with a load that ends, and with answers that do not depend on time."""

import contextlib
import functools
import hashlib
import http.server
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.realpath(__file__))
C = os.path.join(HERE, "..", "c")
IS_ROOT = os.geteuid() == 0
PROGRAMS = {}


class Program:
    def __init__(self, run, needs):
        self.run, self.needs = run, needs


def program(name, *needs):
    """`run` returns what the program answered, and how many operations that took."""
    def add(run):
        PROGRAMS[name] = Program(run, needs)
        return run
    return add


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def listens(port):
    def ready():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
    return ready


def digest(parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()


@functools.cache
def kept():
    """A folder for what all runs share; it goes when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="preload-")
    os.chmod(folder.name, 0o755)
    return folder


def certificate(run):
    """A file with a key and its certificate."""
    path = os.path.join(kept().name, "both.pem")
    if not os.path.exists(path):
        run.tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test", "-days", "2",
                 "-keyout", path + ".key", "-out", path + ".crt")
        text = ""
        for part in (".crt", ".key"):
            with open(path + part, encoding="ascii") as file:
                text += file.read()
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    return path


def ask(connection, path):
    """The body of an HTTP answer that stays open."""
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: test\r\n\r\n" % path)
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65536)
        if not more:
            raise EOFError(got)
        got += more
    head, body = got.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)[1])
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b"\r\n")[0] + body


def in_threads(threads, work):
    """What `work` returns for each number, joined."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


def tls_requests(port, threads, handshakes):
    """Each connection has a full handshake, and two requests."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def work(number):
        answers = []
        for at in range(handshakes):
            with socket.create_connection(("127.0.0.1", port), 60) as plain, \
                    context.wrap_socket(plain) as connection:
                answers += [ask(connection, b"/%d/%d/%d" % (number, at, i)) for i in range(2)]
        return digest(answers)
    return in_threads(threads, work)


def requests(port, threads, count, paths):
    def work(number):
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            answers = [ask(connection, b"/%d" % ((number + at) % paths)) for at in range(count)]
        return digest(answers)
    return in_threads(threads, work)


@program("haproxy", "haproxy", "openssl")
def haproxy(run):
    port = free_port()
    jail = f"chroot {run.folder}\n    user nobody\n    group nogroup" if IS_ROOT else ""
    config = run.write("config", f"""
global
    nbthread 4
    {jail}
defaults
    mode http
    timeout client 60s
    timeout http-request 60s
    timeout http-keep-alive 60s
frontend all
    bind 127.0.0.1:{port} ssl crt {certificate(run)}
    http-request return status 200 content-type text/plain lf-string "hello %[path]"
""")
    run.serve("haproxy", "-f", config, "-db", ready=listens(port))
    threads, handshakes = 4, 250
    with run.load():
        answers = tls_requests(port, threads, handshakes)
    run.end()
    return answers, threads * handshakes


@program("nginx", "nginx", "openssl")
def nginx(run):
    port = free_port()
    for number in range(50):
        run.write(f"{number}", f"file {number} " * 2000)
    os.mkdir(os.path.join(run.folder, "cache"))
    config = run.write("config", f"""
daemon off;
worker_processes 2;
{"user nobody nogroup;" if IS_ROOT else ""}
pid {run.folder}/pid;
error_log stderr warn;
thread_pool default threads=4;
events {{ worker_connections 100; }}
http {{
    access_log off;
    aio threads;
    client_body_temp_path {run.folder}/cache;
    keepalive_requests 100000;
    server {{ listen 127.0.0.1:{port}; root {run.folder}; }}
}}
""")
    run.serve("nginx", "-p", run.folder, "-c", config, ready=listens(port))
    with run.load():
        answers = requests(port, 4, 3000, 50)
    run.end()
    return answers, 4 * 3000


def zone(run):
    """A zone of 1,000 names, and a file of queries for these and for others."""
    names = "".join(f"n{i} A 10.0.{i // 256}.{i % 256}\n" for i in range(1000))
    run.write("queries", "".join(f"n{i}.example.test A\n" for i in range(0, 1100)))
    return run.write("zone", "$ORIGIN example.test.\n$TTL 3600\n"
                     f"@ SOA ns.example.test. a.example.test. 1 3600 3600 3600 3600\n"
                     f"@ NS ns.example.test.\nns A 127.0.0.1\n{names}")


def queries(run, port, count):
    """What the server says to `count` queries, and in full to some of them."""
    said = run.tool("dnsperf", "-s", "127.0.0.1", "-p", str(port), "-d", "queries", "-c", "8",
                    "-T", "2", "-q", "100", "-n", str(count), "-t", "30")
    lines = [line.strip() for line in said.splitlines()
             if re.search("Queries (sent|completed|lost)|Response codes", line)]
    full = [run.tool("kdig", "@127.0.0.1", "-p", str(port), *how, f"n{number}.example.test")
            for number in (0, 7, 999, 1050) for how in (["+noall", "+answer"], ["+tcp", "+short"])]
    return [lines, [re.sub(r"\t\d+\t", " ", it) for it in full]]


@program("unbound", "unbound", "dnsperf", "kdig")
def unbound(run):
    port = free_port()
    zone(run)
    jail, user = (run.folder, "nobody") if IS_ROOT else ("", "")
    config = run.write("config", f"""
server:
    num-threads: 4
    interface: 127.0.0.1@{port}
    chroot: "{jail}"
    username: "{user}"
    directory: "{run.folder}"
    pidfile: ""
    use-syslog: no
    module-config: "iterator"
    do-not-query-localhost: no
    local-zone: "test." transparent
auth-zone:
    name: "example.test"
    zonefile: "{run.folder}/zone"
    for-downstream: no
    for-upstream: yes
    fallback-enabled: no
remote-control:
    control-enable: no
""")
    run.serve("unbound", "-d", "-c", config, ready=listens(port))
    passes = 250
    with run.load():
        answers = queries(run, port, passes)
    run.end()
    return answers, passes * 1100


@program("knot", "knotd", "dnsperf", "kdig")
def knot(run):
    port = free_port()
    zone(run)
    user = 'user: "nobody:nogroup"' if IS_ROOT else ""
    config = run.write("config", f"""
server:
    listen: 127.0.0.1@{port}
    rundir: {run.folder}
    udp-workers: 4
    tcp-workers: 4
    {user}
database:
    storage: {run.folder}/database
log:
  - target: stderr
    any: warning
zone:
  - domain: example.test
    storage: {run.folder}
    file: zone
    zonefile-sync: -1
""")
    run.serve("knotd", "-c", config, ready=listens(port))
    passes = 300
    with run.load():
        answers = queries(run, port, passes)
    run.end()
    return answers, passes * 1100


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):  # noqa: N802, a name of the base class
        body = b"page " + self.path.encode() * 200
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@program("varnish", "varnishd", "cc")
def varnish(run):
    port = free_port()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend) as backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        config = run.write("config.vcl", f"""
vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{backend.server_port}"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; }}
""")
        jail = "unix" if IS_ROOT else "none"
        run.serve("varnishd", "-F", "-j", jail, "-a", f"127.0.0.1:{port}", "-f", config,
                  "-n", os.path.join(run.folder, "state"), "-s", "malloc,32m",
                  "-p", "thread_pools=2", "-p", "thread_pool_min=10", ready=listens(port))
        with run.load():
            answers = requests(port, 8, 4000, 100)
        run.end()
        backend.shutdown()
    return answers, 8 * 4000


@program("memcached", "memcached")
def memcached(run):
    port = free_port()
    run.serve("memcached", "-l", "127.0.0.1", "-p", str(port), "-t", "4", "-m", "64",
              *(["-u", "nobody"] if IS_ROOT else []), ready=listens(port))

    def work(number):
        answers = []
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            with connection.makefile("rb") as lines:
                for at in range(1200):
                    keys = [b"%d-%d" % (number, (at * 7 + i) % 500) for i in range(50)]
                    sets = (b"set %s 0 0 %d\r\n%s\r\n" % (it, 20 * len(it), it * 20) for it in keys)
                    gets = (b"get %s\r\n" % it for it in keys)
                    connection.sendall(b"".join(sets) + b"incr all 1\r\n" + b"".join(gets))
                    told = [lines.readline() for _ in range(51 + 3 * 50)]
                    answers += told[:50] + told[51:]
        return digest(answers)
    with run.load():
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(b"set all 0 0 1\r\n0\r\n")
            connection.recv(100)
            answers = in_threads(4, work)
            connection.sendall(b"get all\r\n")
            answers.append(connection.recv(100))
    run.end()
    return answers, 4 * 1200 * 101


@program("redis", "redis-server", "redis-benchmark", "redis-cli")
def redis(run):
    """Forks while its threads run, to save."""
    port = free_port()
    run.serve("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
              "--io-threads", "2", "--io-threads-do-reads", "yes", "--dir", run.folder,
              "--loglevel", "warning", ready=listens(port))
    cli = ["redis-cli", "-p", str(port)]
    with run.load():
        for at in range(3):
            run.tool("redis-benchmark", "-p", str(port), "-q", "-t", "set,incr,lpush,lpop,mset",
                     "-n", "4000", "-c", "20", "-P", "10", "--threads", "2")
            run.tool(*cli, "bgsave")
            while "rdb_bgsave_in_progress:1" in (said := run.tool(*cli, "info", "persistence")):
                pass
    answers = [re.findall("rdb_last_bgsave_status:.*", said), run.tool(*cli, "dbsize"),
               run.tool(*cli, "get", "counter:__rand_int__")]
    run.end()
    return answers, 3 * 5 * 4000


def database(run):
    """A data folder that was made once."""
    made = os.path.join(kept().name, "database")
    if not os.path.exists(made):
        run.tool("mariadb-install-db", "--no-defaults", f"--datadir={made}", "--skip-test-db",
                 "--auth-root-authentication-method=normal", *as_user())
    mine = os.path.join(run.folder, "database")
    shutil.copytree(made, mine)
    if IS_ROOT:
        run.tool("chown", "-R", "nobody", mine)
    return mine


def as_user():
    return ["--user=nobody"] if IS_ROOT else []


@program("mariadb", "mariadbd", "mariadb-install-db", "mariadb-slap", "mariadb")
def mariadb(run):
    path, at = os.path.join(run.folder, "socket"), database(run)
    client = ["--no-defaults", f"--socket={path}", "--user=root"]
    run.serve("mariadbd", "--no-defaults", f"--datadir={at}", f"--socket={path}",
              "--skip-networking", f"--pid-file={at}/pid", "--innodb-buffer-pool-size=32M",
              "--innodb-flush-log-at-trx-commit=0", *as_user(),
              ready=lambda: os.path.exists(path))
    run.write("create", "create table t (n int primary key auto_increment, a int, b varchar(40),"
              " key (a)) engine=innodb; insert into t (a, b) select seq, seq from seq_1_to_1000;")
    run.write("load", "insert into t (a, b) values (1, 'x'); update t set a = a + 1 where n = 7;"
              "select count(*) from t where a < 50; select b from t where n = 500;"
              "select sum(a) from t where n < 100;")
    count = 10000
    with run.load():
        run.program("mariadb-slap", *client, "--concurrency=8", f"--number-of-queries={count}",
                    "--create=create", "--query=load", "--delimiter=;", "--create-schema=s",
                    "--no-drop", "--silent")
    said = run.tool("mariadb", *client, "-N", "-e",
                    "select count(*), sum(a) from s.t; check table s.t")
    run.end()
    return [said], count


@program("rocksdb", "db_bench")
def rocksdb(run):
    number, threads = 10000, 4
    said = run.program(
        "db_bench", "--benchmarks=fillrandom,readrandom,overwrite,multireadrandom,readwhilewriting",
        f"--db={run.folder}/db", f"--num={number}", f"--threads={threads}", "--seed=1",
        "--cache_size=1000000", "--write_buffer_size=2000000", "--compression_type=none")
    names = re.findall(r"^(\w+) +:", said, re.MULTILINE)
    found = re.findall(r"^readrandom .*(\(\d+ of \d+ found\))", said, re.MULTILINE)
    return [names, found], 5 * threads * number


@program("stress-ng", "stress-ng")
def stress_ng(run):
    """Threads with priorities, locks between processes, and threads and processes that come and go."""
    loads = {"mutex": 200000, "pthread": 3000, "futex": 20000, "flock": 20000, "lockf": 20000,
             "lockofd": 20000, "fork": 500, "vfork": 500, "clone": 30}
    arguments = [it for name, count in loads.items() for it in (f"--{name}", "1", f"--{name}-ops",
                                                                str(count))]
    command = ["stress-ng", *arguments, "--verify", "--timeout", "60", "--temp-path", run.folder]
    run.program(*command)
    # The mutex stressor's first thread has a real-time priority. If it is done before the thread that
    # started it runs again, that one takes it for a thread that could not be created, in version
    # 0.15.06 with any library. It then ends with EXIT_NO_RESOURCE.
    while run.statuses == [3] and "mutex: could not create any pthreads" in run.said():
        run.statuses.clear()
        run.log.truncate(0)
        run.log.seek(0)
        run.program(*command)
    return [], sum(loads.values())


@program("openssl", "openssl")
def openssl(run):
    """Processes, as this program has no threads."""
    said = run.program("openssl", "speed", "-mr", "-seconds", "1", "-multi", "2", "-evp", "sha256",
                       "-bytes", "64")
    rate = re.search(r"^\+F:.*:([0-9.]+)$", said, re.MULTILINE)
    return [said.count("+F:")], round(float(rate[1]) / 64)


@program("python3", "/usr/bin/python3")
def python(run):
    return [run.program("/usr/bin/python3", os.path.join(C, "digests.py"), "6000")], 4 * 6000


def handshake(what, threads, operations):
    def tls(run):
        built = os.path.join(kept().name, "handshake")
        if not os.path.exists(built):
            run.tool("cc", "-O2", "-pthread", "-o", built, os.path.join(C, "handshake.c"), "-lssl",
                     "-lcrypto")
        said = run.program(built, what, str(threads), str(operations))
        return [said], threads * operations
    return tls


for of, count, each in [("digests", 1, 2000000), ("digests", 2, 1000000), ("handshakes", 2, 500),
                        ("handshakes", 8, 125)]:
    program(f"{of}-{count}", "cc")(handshake(of, count, each))
