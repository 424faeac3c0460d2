"""Opening a session: what goes out, and what is said when it does not work."""

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import pytest
import trustme
from utterwire_client import (
    ConnectFailed,
    DeadlineExceeded,
    Deadlines,
    ExtraMissing,
    RequestInvalid,
    TransportClosed,
    connect,
)
from utterwire_client.websocket import open_websocket
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

Serve = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.usefixtures("no_leftover_tasks")


async def silent(peer: Any) -> None:
    await peer.gone()


async def polite(peer: Any) -> None:
    await peer.say_goodbye()


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


async def test_what_goes_out(endpoint: Serve) -> None:
    seen: list[Request] = []

    async def script(peer: Any) -> None:
        seen.append(peer.connection.request)
        await peer.say_goodbye()

    headers = [("Authorization", "Bearer t"), ("X-A", "1"), ("X-A", "2"), ("X-B", "é")]
    async with connect(await endpoint(script), headers=headers):
        pass
    [request] = seen
    assert request.path == "/invocations-bidirectional-stream"
    assert request.headers["Authorization"] == "Bearer t"
    assert request.headers.get_all("X-A") == ["1", "2"]
    assert request.headers["User-Agent"].startswith("utterwire-client/")
    assert "Sec-WebSocket-Extensions" not in request.headers


async def test_headers_as_a_mapping_and_a_path_of_ones_own(endpoint: Serve) -> None:
    seen: list[Request] = []

    async def script(peer: Any) -> None:
        seen.append(peer.connection.request)
        await peer.say_goodbye()

    url = await endpoint(script)
    async with connect(f"{url}/tts?key=1", headers={"User-Agent": "mine"}):
        pass
    assert (seen[0].path, seen[0].headers["User-Agent"]) == ("/tts?key=1", "mine")


@pytest.mark.parametrize(
    "headers",
    [
        {"": "x"},
        {"a b": "x"},
        {"a:": "x"},
        {"ü": "x"},
        {"a": "x\r\nInjected: y"},
        {"a": "x\x00"},
        {"a": "x\x7f"},
        {"a": "\ud800"},
    ],
)
async def test_headers_that_are_none(headers: dict[str, str]) -> None:
    with pytest.raises(RequestInvalid) as caught:
        async with connect("ws://127.0.0.1:1", headers=headers):
            pass
    one_line(caught.value)
    assert "Injected" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8080", "ws://a..b", f"ws://{'a' * 300}.invalid"])
async def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(RequestInvalid):
        async with connect(url):
            pass


async def test_nothing_listens(closed_port: int) -> None:
    with pytest.raises(ConnectFailed, match="nothing listens") as caught:
        async with connect(f"ws://127.0.0.1:{closed_port}"):
            pass
    one_line(caught.value)
    assert caught.value.retryable


async def test_several_addresses_and_nothing_listens(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def both(host: str, port: int, **_: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, port)) for address in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(loop, "getaddrinfo", both)
    with pytest.raises(ConnectFailed, match="no connection to ws://two") as caught:
        async with connect(f"ws://two.example:{closed_port}", proxy=None):
            pass
    one_line(caught.value)


async def test_a_host_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(loop, "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed, match=r"host of ws://tts\.invalid.* is not known"):
        async with connect("ws://user:secret@tts.invalid", proxy=None):
            pass


@pytest.mark.parametrize(
    "status", [200, 301, 307, 400, 401, 403, 404, 426, 429, 500, 502, 503, 504]
)
async def test_an_http_answer(endpoint: Serve, status: int) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(HTTPStatus(status), "secret\nbody")
        if status in (429, 503):
            response.headers["Retry-After"] = (
                "7" if status == 503 else "Wed, 21 Oct 2099 07:28:00 GMT"
            )
        if status in (301, 307):
            response.headers["Location"] = "/elsewhere"
        return response

    url = await endpoint(silent, process_request=refuse)
    with pytest.raises(ConnectFailed, match=f"HTTP {status}") as caught:
        async with connect(url):
            pass
    one_line(caught.value)
    assert caught.value.status == status
    assert caught.value.retryable is (status in (429, 500, 502, 503, 504))
    assert caught.value.retry_after_s == (7.0 if status == 503 else None)


async def raw_server(answer: bytes) -> tuple[asyncio.Server, str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: wrong\r\n\r\n"
        ),
    ],
)
async def test_what_is_no_websocket_server(answer: bytes) -> None:
    server, address = await raw_server(answer)
    async with server:
        with pytest.raises(ConnectFailed) as caught:
            async with connect(f"ws://{address}"):
                pass
    one_line(caught.value)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_server_that_does_not_answer(scheme: str) -> None:
    released = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DeadlineExceeded, match=r"within 0\.1 s") as caught:
            async with connect(f"{scheme}://127.0.0.1:{port}", deadlines=Deadlines(connect_s=0.1)):
                pass
        assert caught.value.which == "connect"
        released.set()


async def test_the_operating_systems_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_: Any, **__: Any) -> None:
        raise TimeoutError(110, "Connection timed out")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", late)
    with pytest.raises(ConnectFailed, match="does not answer") as caught:
        async with connect("ws://tts.example", proxy=None):
            pass
    one_line(caught.value)


async def test_a_user_without_a_password() -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with connect("ws://somebody@tts.example", proxy=None):
            pass
    assert "somebody" not in one_line(caught.value)


async def test_a_connection_that_is_closed_takes_nothing_more(endpoint: Serve) -> None:
    async def script(peer: Any) -> None:
        await peer.connection.close(4001, "enough")

    transport = await open_websocket(await endpoint(script), connect_s=10, close_s=10)
    with pytest.raises(TransportClosed, match="4001: 'enough'"):
        await transport.receive()
    with pytest.raises(TransportClosed) as caught:
        await transport.send("{}")
    assert caught.value.code == 4001
    await transport.close()


# -- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls(endpoint: Serve, authority: trustme.CA) -> None:
    url = await endpoint(polite, tls=server_context(authority))
    assert url.startswith("wss://")
    async with connect(url, ssl=client_context(authority)):
        pass


async def test_an_authority_that_is_not_trusted(endpoint: Serve, authority: trustme.CA) -> None:
    url = await endpoint(silent, tls=server_context(authority))
    with pytest.raises(ConnectFailed, match=r"not trusted .*ca_file") as caught:
        async with connect(url):
            pass
    one_line(caught.value)
    assert not caught.value.retryable


async def test_a_certificate_for_somebody_else(endpoint: Serve, authority: trustme.CA) -> None:
    url = await endpoint(silent, tls=server_context(authority, "other.example"))
    with pytest.raises(ConnectFailed, match="localhost"):
        async with connect(url, ssl=client_context(authority)):
            pass


async def test_tls_to_a_server_without(endpoint: Serve) -> None:
    url = (await endpoint(silent)).replace("ws://", "wss://")
    with pytest.raises(ConnectFailed) as caught:
        async with connect(url):
            pass
    one_line(caught.value)


async def test_no_tls_to_a_server_with(endpoint: Serve, authority: trustme.CA) -> None:
    url = (await endpoint(silent, tls=server_context(authority))).replace("wss://", "ws://")
    with pytest.raises(ConnectFailed, match="ws:// or wss://"):
        async with connect(url):
            pass


async def test_tls_settings_without_tls(authority: trustme.CA) -> None:
    with pytest.raises(RequestInvalid, match="not a wss:// address"):
        async with connect("ws://127.0.0.1:1", ssl=client_context(authority)):
            pass


# -- proxies


async def test_the_environments_proxy_is_not_for_this_machine(
    endpoint: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    async with connect(await endpoint(polite)):
        pass


async def test_a_proxy(endpoint: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    target = await endpoint(polite)
    asked: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        host, port = target.removeprefix("ws://").split(":")
        onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(forward(reader, onward[1]), forward(onward[0], writer))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("ws_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        async with connect("ws://tts.example:80"):
            pass
    assert asked[0].startswith(b"CONNECT tts.example:80 ")


@pytest.mark.parametrize(
    "proxy", ["nonsense", "ftp://user:secret@127.0.0.1:1", "socks5://user:secret@127.0.0.1:1"]
)
async def test_a_proxy_that_is_none(proxy: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with connect("ws://tts.example", proxy=proxy):
            pass
    assert "secret" not in one_line(caught.value)


async def test_a_proxy_that_refuses() -> None:
    server, address = await raw_server(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    async with server:
        with pytest.raises(ConnectFailed, match="through the proxy"):
            async with connect("ws://tts.example", proxy=f"http://{address}"):
                pass


# -- the object itself


async def test_it_is_entered_once(endpoint: Serve) -> None:
    connecting = connect(await endpoint(polite))
    async with connecting:
        with pytest.raises(RuntimeError, match="once"):
            await connecting.__aenter__()


async def test_cancelled_while_it_connects() -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await released.wait()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)

    async def talk(port: int) -> None:
        async with connect(f"ws://127.0.0.1:{port}"):
            pass

    async with server:
        task = asyncio.create_task(talk(server.sockets[0].getsockname()[1]))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        released.set()


async def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "utterwire_client.websocket")
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(
        ExtraMissing, match=r"package websockets: pip install 'utterwire\[client\]'"
    ):
        async with connect("ws://127.0.0.1:1"):
            pass
