"""How much of the database's own speed a claim over HTTP keeps. Run: `make bench`.

Both sides run in the same minute on the same database: pgbench calls the claim and release functions directly; the
service gets the same pair as PUT and DELETE over keep-alive connections. The ratio is what to compare between
machines and commits; the absolute figures are not.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from fabric_manager.store.embedded import find_binaries
from fabric_manager.store.embedded.connecting import database_url

ROOT = Path(__file__).parent.parent
COMMAND = (sys.executable, "-m", "fabric_manager", "serve", "--port", "0")
SECONDS = 5
ROUNDS = 3
CLIENTS = (1, 8, 32)
BODY = b'{"tenant":"t%d","size_bytes":68719476736,"pool":"high-performance"}'
PAIR_SQL = r"""
\set t random(1, 1000000000)
SELECT claim(jsonb_build_object('key', format('b-%s-%s', :client_id, :t), 'ctx', ctx, 'request', wish,
    'tenant_id', ensure_tenant(jsonb_build_object('name', 't' || :client_id, 'id', gen_random_uuid(), 'ctx', ctx)),
    'allocation_id', gen_random_uuid(), 'segment_id', gen_random_uuid(), 'attachment_id', gen_random_uuid(),
    'operation_id', gen_random_uuid(),
    'candidates', (SELECT jsonb_agg(c->'number' ORDER BY (c->>'free_bytes')::bigint) FROM jsonb_array_elements(
      claim_candidates(jsonb_build_object('request', wish, 'tried', '[]'::jsonb, 'window_max', 64))->'candidates') c)))
FROM (SELECT '{"actor": "bench"}'::jsonb AS ctx, '{"tenant": "t", "size_bytes": 68719476736, "bind": true,
  "pool": "high-performance", "host": null, "attachment": "any", "labels": {}}'::jsonb AS wish) w;
SELECT release(jsonb_build_object('key', format('b-%s-%s', :client_id, :t), 'operation_id', gen_random_uuid(),
  'tombstone_scope', 'any', 'ctx', '{"actor": "bench"}'::jsonb));
"""


def reference(url: str, script: Path, clients: int) -> float:
    """Pairs per second that pgbench gets out of the same functions."""
    parts = urlsplit(url)
    host = parts.query.removeprefix("host=").replace("%2F", "/")
    command = [
        str(find_binaries().directory / "pgbench"),
        *("-n", "-M", "simple", "-f", str(script), "-c", str(clients), "-j", "1", "-T", str(SECONDS)),
        *("-h", host, "-U", str(parts.username), parts.path[1:]),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PGPASSWORD": str(parts.password)}
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps"))
    return float(line.split()[2])


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, body: bytes) -> int:
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = int((await reader.readline()).split()[1])
    length = 0
    while (line := await reader.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return status


async def one_client(number: int, port: int, token: str, until: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    common = f"Host: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n".encode()
    count = 0
    while time.monotonic() < until:
        path = b"/v1/allocations/h-%d-%d-%d" % (number, int(until * 1000), count)
        begun = time.monotonic()
        put = await ask(reader, writer, b"PUT %b HTTP/1.1\r\n%b" % (path, common), BODY % number)
        gone = await ask(reader, writer, b"DELETE %b HTTP/1.1\r\n%b" % (path, common), b"")
        assert (put, gone) == (201, 204), (put, gone)
        took.append(time.monotonic() - begun)
        count += 1
    writer.close()


async def over_http(port: int, token: str, clients: int) -> list[float]:
    took: list[float] = []
    until = time.monotonic() + SECONDS
    await asyncio.gather(*(one_client(n, port, token, until, took) for n in range(clients)))
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory)
        service = subprocess.Popen(
            [*COMMAND, "--data-dir", directory, "--topology", str(ROOT / "examples" / "rack.yaml")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert service.stdout is not None
            port = int(service.stdout.readline().rsplit(":", 1)[1])
            measure(data_dir, port)
        finally:
            service.terminate()
            service.wait()


def measure(data_dir: Path, port: int) -> None:
    token = (data_dir / "admin.token").read_text().strip()
    password = (data_dir / "postgres.password").read_text().strip()
    socket_dir = Path((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[4])
    url = database_url(socket_dir=socket_dir, password=password)
    script = data_dir / "pair.sql"
    script.write_text(PAIR_SQL)
    print("pairs of claim and release per second, medians of", ROUNDS, "rounds; durable commits")
    print(f"{'clients':>7} {'functions':>10} {'HTTP':>8} {'ratio':>6} {'p50 ms':>7} {'p99 ms':>7}")
    for clients in CLIENTS:
        rows = []
        for _ in range(ROUNDS):
            functions = reference(url, script, clients)
            took = asyncio.run(over_http(port, token, clients))
            rows.append((functions, len(took) / SECONDS, median(took), quantiles(took, n=100)[98]))
        functions, http, p50, p99 = (median(column) for column in zip(*rows, strict=True))
        print(
            f"{clients:>7} {functions:>10.0f} {http:>8.0f} {http / functions:>6.2f} {p50 * 1e3:>7.1f} {p99 * 1e3:>7.1f}"
        )


if __name__ == "__main__":
    main()
