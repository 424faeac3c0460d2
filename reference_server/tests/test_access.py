"""Who is let in, over real sockets: tokens, origins, addresses and TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from starlette.types import Message
from utterwire_server import cli, runner
from utterwire_server.access import Access, read_tokens, tls_context
from utterwire_server.app import create_app
from utterwire_server.engines import ToneEngine
from utterwire_server.runner import Runner, listen
from utterwire_server.service import Service
from utterwire_server.settings import Settings
from utterwire_server.wire import HttpWire, WebSocketWire
from websockets.asyncio.client import connect as open_websocket

TOKEN = "s3cret-token_with.all~the+signs/=="
SITE = "https://app.example.com"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def client_of(server: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=60, base_url=server.http)


def lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (BEARER, 200),
        ({"Authorization": f"bearer   {TOKEN}"}, 200),
        ({"Authorization": "Bearer another-token"}, 200),
        ({}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"}, 401),
        ({"Authorization": "Bearer t\xf6ken"}, 401),
    ],
)
async def test_a_token_opens_everything_but_ping_which_is_open(
    start: Any, connect: Any, headers: dict[str, str], status: int
) -> None:
    server = await start(access=Access(tokens=("another-token", TOKEN)))
    peer = await connect(server, headers=lines(headers))
    assert peer.status == (101 if status == 200 else status)
    async with client_of(server) as client:
        sent = httpx.Headers(headers, encoding="latin-1")
        answer = await client.post("/invocations", json={"text": "Hi."}, headers=sent)
        assert answer.status_code == status
        assert (await client.get("/metrics", headers=sent)).status_code == status
        assert (await client.get("/ping")).status_code == 200
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json() == {
                "error": "a valid token is needed: Authorization: Bearer TOKEN"
            }


@pytest.mark.parametrize(
    ("origin", "allowed", "welcome"),
    [
        (None, (), True),
        ("http://127.0.0.1", (), False),
        ("https://evil.example.com", (), False),
        ("null", (), False),
        ("null", ("null",), True),
        (SITE, (SITE,), True),
        (SITE, (SITE.upper(),), True),
        (f"{SITE}:8443", (SITE,), False),
        (f"{SITE}.evil.example.com", (SITE,), False),
        ("http://app.example.com", (SITE,), False),
        ("https://evil.example.com", ("*",), True),
        (f"{SITE}, {SITE}", (SITE,), False),
    ],
)
async def test_pages_of_other_sites(
    start: Any, connect: Any, origin: str | None, allowed: tuple[str, ...], welcome: bool
) -> None:
    server = await start(access=Access(origins=frozenset(allowed)))
    headers = {} if origin is None else {"Origin": origin}
    assert (await connect(server, headers=lines(headers))).status == (101 if welcome else 403)
    async with client_of(server) as client:
        # What a page can send without asking first.
        answer = await client.post("/invocations", content=b'{"text": "Hi."}', headers=headers)
    assert answer.status_code == (200 if welcome else 403)
    shown = answer.headers.get("access-control-allow-origin")
    assert (shown is not None) == (welcome and bool(allowed))


@pytest.mark.parametrize(
    ("origin", "host", "tokens", "welcome"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", (), True),
        ("http://[::1]:8080", "[::1]:8080", (), True),
        ("http://[::1]", "[::1]", (), True),
        ("http://localhost:8080", "LOCALHOST:8080", (), True),
        ("http://app.localhost", "app.localhost", (), True),
        ("https://app.example.com", "app.example.com", (), True),
        # A site may have its own name lead to this machine, and then is a page of "this" server.
        ("http://evil.example.com:8080", "evil.example.com:8080", (), False),
        ("http://evil.example.com:8080", "evil.example.com:8080", (TOKEN,), True),
        ("http://127.0.0.1.evil.example.com", "127.0.0.1.evil.example.com", (), False),
        ("http://evillocalhost", "evillocalhost", (), False),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", (TOKEN,), False),
        ("null", "", (TOKEN,), False),
        ("http://", "", (TOKEN,), False),
    ],
)
def test_which_pages_are_the_servers_own(
    origin: str, host: str, tokens: tuple[str, ...], welcome: bool
) -> None:
    assert Access(tokens=tokens).welcomes(origin, host) is welcome


async def test_the_servers_own_pages(start: Any) -> None:
    server = await start()
    async with client_of(server) as client:
        headers = {"Origin": f"http://127.0.0.1:{server.port}"}
        answer = await client.post("/invocations", json={"text": "Hi."}, headers=headers)
    assert answer.status_code == 200


async def test_a_page_asks_before_it_sends_its_token(start: Any) -> None:
    server = await start(access=Access(tokens=(TOKEN,), origins=frozenset({SITE})))
    asked = {
        "Origin": SITE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    async with client_of(server) as client:
        preflight = await client.options("/invocations", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == SITE
        asked["Origin"] = "https://evil.example.com"
        assert (await client.options("/invocations", headers=asked)).status_code == 400
        told = await client.post("/invocations", json={"text": "Hi."}, headers={"Origin": SITE})
        # The page can read why.
        assert told.status_code == 401
        assert told.headers["access-control-allow-origin"] == SITE
        spoken = await client.post(
            "/invocations", json={"text": "Hi."}, headers={"Origin": SITE, **BEARER}
        )
        assert spoken.status_code == 200
        assert "Utterwire-Sample-Rate" in spoken.headers["access-control-expose-headers"]


async def test_sessions_of_one_address(start: Any, connect: Any, eventually: Any) -> None:
    server = await start(access=Access(sessions_per_address=2))
    first, second = await connect(server), await connect(server)
    refused = await connect(server)
    assert refused.status == 429
    assert "retry-after: 5\r\n" in refused.headers
    async with client_of(server) as client:
        answer = await client.post("/invocations", json={"text": "Hi."})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert "your address has 2" in answer.json()["error"]
        # Neither of these counts.
        assert (await client.get("/ping")).status_code == 200
        metrics = await client.get("/metrics")
        assert 'utterwire_refusals_total{reason="address"} 2.0' in metrics.text
        await first.leave()
        await eventually(lambda: server.service.guests == 1)
        # Each request gives its place back.
        for _ in range(3):
            assert (await client.post("/invocations", json={"text": "Hi."})).status_code == 200
    second.say(text="Hello.")
    await second.until("synthesis_complete")
    assert (await connect(server)).status == 101


@pytest.mark.parametrize(
    ("addresses", "admitted"),
    [
        (["192.0.2.1", "192.0.2.2"], 2),
        (["192.0.2.1", "::ffff:192.0.2.1"], 1),
        (["2001:db8::1", "2001:db8::2"], 1),
        (["2001:db8::1", "2001:db8:0:1::1"], 2),
        (["fe80::1%eth0", "fe80::2%eth1"], 1),
        (["a socket", "a socket"], 2),
        ([None, None], 2),
    ],
)
async def test_what_one_address_is(addresses: list[str | None], admitted: int) -> None:
    """Of IPv6 it is the network; without an address nobody is refused."""
    service = Service(Settings(), ToneEngine(), access=Access(sessions_per_address=1))
    app = create_app(service)
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    service.load()
    await service.loaded()
    tasks = []
    for address in addresses:
        scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": "/invocations", "headers": [],
            "http_version": "1.1", "query_string": b"", "scheme": "http", "root_path": "",
            "client": None if address is None else (address, 1),
        }  # fmt: skip
        tasks.append(asyncio.create_task(app(scope, receive, send)))
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert service.guests == admitted
    gone.set()
    await asyncio.gather(*tasks)
    assert statuses == [429] * (len(addresses) - admitted)
    await service.unload()


async def test_under_a_server_that_knows_no_refusal_the_socket_is_closed() -> None:
    app = create_app(Service(Settings(), ToneEngine(), access=Access(tokens=(TOKEN,))))
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    scope = {
        "type": "websocket", "path": "/invocations-bidirectional-stream", "headers": [],
        "query_string": b"", "scheme": "ws", "root_path": "", "subprotocols": [],
    }  # fmt: skip
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tokens": ("fine", "with space")}, "token 2 is none that a header can carry"),
        ({"tokens": ("",)}, "token 1"),
        ({"origins": frozenset({"app.example.com"})}, "'app.example.com' is not an origin"),
        ({"origins": frozenset({f"{SITE}/path"})}, "is not an origin"),
        ({"sessions_per_address": -1}, "must be 0 or more"),
    ],
)
def test_access_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as told:
        Access(**fields)
    assert "with space" not in str(told.value)


def test_a_token_is_never_shown() -> None:
    assert TOKEN not in repr(Access(tokens=(TOKEN,)))


def test_tokens_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"\n{TOKEN}\n  another-token \r\n\n")
    assert read_tokens(str(path)) == (TOKEN, "another-token")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "has no token"), (b"\n \n", "has no token"), (b"\xff", "text")],
)
def test_a_token_file_that_is_none(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as told:
        read_tokens(str(path))
    assert str(path) in str(told.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with chain.pem, key.pem and both.pem."""
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for blob in issued.cert_chain_pems:
        blob.write_to_path(folder / "chain.pem", append=True)
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    return folder


@pytest.mark.parametrize("files", [("chain.pem", "key.pem"), ("both.pem",)])
async def test_sessions_and_requests_by_tls(
    authority: trustme.CA, certificate: Path, files: tuple[str, ...]
) -> None:
    settings = Settings()
    sock = listen("127.0.0.1", 0, send_buffer_bytes=settings.send_buffer_bytes)
    port = sock.getsockname()[1]
    tls = tls_context(*(str(certificate / name) for name in files))
    served = Runner(Service(settings, ToneEngine()), sock, tls=tls)
    serving = asyncio.create_task(served.run())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    url = f"wss://127.0.0.1:{port}/invocations-bidirectional-stream"
    async with httpx.AsyncClient(
        trust_env=False, timeout=60, verify=trusting, base_url=f"https://127.0.0.1:{port}"
    ) as client:
        while (await client.get("/ping")).status_code != 200:
            pass
        spoken = await client.post("/invocations", json={"text": "Hello."})
        async with open_websocket(url, ssl=trusting, proxy=None) as session:
            await session.send('{"text": "Hello."}')
            audio = b""
            while True:
                message = await session.recv()
                if isinstance(message, bytes):
                    audio += message
                elif json.loads(message)["type"] == "synthesis_complete":
                    break
    assert audio == spoken.content != b""
    with pytest.raises(OSError, match=r"CERTIFICATE_VERIFY_FAILED|certificate"):
        await open_websocket(url, proxy=None, ssl=ssl.create_default_context())
    # Who speaks no TLS gets no answer, and harms nobody.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200" not in await reader.read()
    writer.close()
    served.stop()
    assert await serving == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: (f / "none.pem", None), r"none\.pem: No such file"),
        (lambda f: (f / "chain.pem", f / "none.pem"), r"none\.pem: No such file"),
        (lambda f: (f / "chain.pem", None), "are no certificate and its key"),
        (lambda f: (f / "chain.pem", f / "other.pem"), "key values mismatch"),
        (lambda f: (f / "chain.pem", f / "locked.pem"), "is encrypted"),
    ],
)
def test_tls_files_that_do_not_serve(
    authority: trustme.CA, certificate: Path, make: Any, words: str
) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    other = authority.issue_cert("localhost").private_key_pem
    other.write_to_path(certificate / "other.pem")
    key = pem.load_pem_private_key(other.bytes(), None)
    locked = key.private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
    )
    (certificate / "locked.pem").write_bytes(locked)
    chain, key_file = make(certificate)
    with pytest.raises(ValueError, match=words) as told:
        tls_context(str(chain), None if key_file is None else str(key_file))
    assert "\n" not in str(told.value)


async def test_a_pause_of_the_handshake_ends_no_session(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TLS, tickets that wait to be sent pause writing just as a session is opened."""
    wires: list[HttpWire] = []
    upgrade = HttpWire.handle_websocket_upgrade

    def paused(wire: HttpWire) -> None:
        wires.append(wire)
        wire.pause_writing()
        upgrade(wire)
        session = wire.transport.get_protocol()
        assert isinstance(session, WebSocketWire)
        assert not session.is_writable
        session.resume_writing()

    monkeypatch.setattr(HttpWire, "handle_websocket_upgrade", paused)
    peer = await connect(await start())
    peer.say(text="Hello.")
    await peer.until("synthesis_complete")
    (wire,) = wires
    assert wire._stall_timer is not None
    assert wire._stall_timer.cancelled()


async def test_token_and_certificate_are_read_again(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: Any
) -> None:
    """At SIGHUP; who is connected stays."""
    given: dict[str, Any] = {}

    def serve(service: Service, sock: socket.socket, **named: Any) -> int:
        given.update(named, service=service, sock=sock)
        return 0

    def write(token: str) -> None:
        tokens.write_text(token)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(chain)

    chain, tokens = tmp_path / "both.pem", tmp_path / "tokens"
    write("first")
    monkeypatch.setattr(runner, "serve", serve)
    files = ["--tls-cert", str(chain), "--token-file", str(tokens)]
    assert cli.main(["--engine", "tone", "--port", "0", *files]) == 0
    port = given["sock"].getsockname()[1]
    served = Runner(given["service"], given["sock"], tls=given["tls"], renew=given["renew"])
    serving = asyncio.create_task(served.run())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def seen(token: str) -> tuple[bytes, bool]:
        """The server's certificate, and whether it takes the token."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        head = "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        status = int((await reader.read()).split()[1])
        writer.close()
        await writer.wait_closed()
        return certificate, status != 401

    before, taken = await seen("first")
    assert taken
    write("second")
    served.hang_up()
    after, taken = await seen("second")
    assert taken
    assert after != before
    assert await seen("first") == (after, False)
    # What cannot be used changes nothing.
    for path, content in ((chain, "junk"), (tokens, "")):
        tokens.write_text("third")
        path.write_text(content)
        served.hang_up()
        assert await seen("second") == (after, True)
    told = [fields["message"] for event, fields in log_lines if event == "renewal_failed"]
    assert [str(chain) in told[0], str(tokens) in told[1], len(told)] == [True, True, 2]
    served.stop()
    assert await serving == 0
