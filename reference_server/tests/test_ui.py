"""The page's files and what stands before them, and the relay to other endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from utterwire_schemas import asyncapi
from utterwire_server import cli
from utterwire_server.access import Access
from utterwire_server.engines import load_engine
from utterwire_server.settings import Settings
from utterwire_server.ui import PAGE_PATHS, relay_address
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Opcode

SESSION = "/invocations-bidirectional-stream"
RELAYED = "/ui/relay/1"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        yield client


class Links(HTMLParser):
    """Addresses that a page leads to, and what a strict policy would not let run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.inline: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.found.add(value or "")
            if name.startswith("on") or name == "style":
                self.inline.append(name)
            if name == "id":
                self.ids.append(value or "")
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


async def test_the_page_and_all_that_it_leads_to(start: Any, client: httpx.AsyncClient) -> None:
    server = await start()
    answer = await client.get(f"{server.http}/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    links = Links()
    links.feed(answer.text)
    assert links.inline == []
    assert len(links.ids) == len(set(links.ids))
    to_find = {link for link in links.found if not link.startswith("#")}
    for script in PAGE_PATHS:
        if script.endswith(".js"):
            text = (await client.get(server.http + script)).text
            to_find |= {f"ui/{name}" for name in re.findall(r'(?:from|URL\()\s*"\./([^"]+)"', text)}
            named = set(re.findall(r'\bat\("([a-z-]+)"\)', text)) if "page.js" in script else set()
            assert named <= set(links.ids)
    assert {"ui/page.js", "ui/player-worklet.js", "ui/sound-formats.js"} <= to_find
    for link in to_find:
        found = await client.get(f"{server.http}/{link}")
        assert found.status_code == 200, link
        if link in {path.lstrip("/") for path in PAGE_PATHS}:
            policy = found.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert found.headers["x-content-type-options"] == "nosniff"


async def test_a_file_that_is_known_is_not_sent_again(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start()
    tag = (await client.get(f"{server.http}/ui/page.js")).headers["etag"]
    for known, status in ((tag, 304), (f'"x", {tag}', 304), ('"x"', 200)):
        answer = await client.get(f"{server.http}/ui/page.js", headers={"If-None-Match": known})
        assert answer.status_code == status
    assert (await client.head(f"{server.http}/")).status_code == 200
    assert (await client.post(f"{server.http}/")).status_code == 405


async def test_what_the_asyncapi_document_refers_to_is_there(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start()
    assert (await client.get(f"{server.http}/ui/asyncapi.json")).json() == asyncapi()
    there = set(re.findall(r'"(?:\./)?(json/[a-z-]+\.json)', json.dumps(asyncapi())))
    assert there
    assert {f"/ui/{name}" for name in there} <= PAGE_PATHS


async def test_without_the_page_there_is_nothing_of_it(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start(ui=False)
    for path in (*sorted(PAGE_PATHS), "/ui/state"):
        assert (await client.get(server.http + path)).status_code == 404
    assert (await client.get(f"{server.http}/ping")).status_code == 200


async def test_the_page_asks_for_a_token_and_tells_nothing_before(
    start: Any, client: httpx.AsyncClient
) -> None:
    server = await start(access=Access(tokens=("s3cret",)))
    assert (await client.get(f"{server.http}/")).status_code == 200
    assert (await client.post(f"{server.http}/ui/state")).status_code == 401
    headers = {"Authorization": "Bearer s3cret"}
    assert (await client.post(f"{server.http}/ui/state", headers=headers)).json()["token"] is True


async def test_the_state(
    start: Any, connect: Any, client: httpx.AsyncClient, held_engine: Any, eventually: Any
) -> None:
    server = await start(held_engine)
    peer = await connect(server)
    peer.say(text="Hello.")
    peer.say(text="And you?")
    await eventually(lambda: server.service.scheduler.backlog.places == 2)
    state = (await client.post(f"{server.http}/ui/state")).json()
    assert (state["status"], state["engine"], state["token"]) == ("ready", "held", False)
    assert (state["sessions"], state["guests"]) == (1, 1)
    assert (state["queue"]["utterances"], state["queue"]["characters"]) == (2, 14)
    assert state["voices"][0] == "alto"
    assert 24_000 in state["formats"]["pcm_s16le"]
    assert state["endpoints"] == []
    # To a name that somebody makes lead here a browser would say no origin with a GET.
    assert (await client.get(f"{server.http}/ui/state")).status_code == 405
    rebound = {"Host": "evil.example:80", "Origin": "http://evil.example:80"}
    answer = await client.post(f"{server.http}/ui/state", headers=rebound)
    assert answer.status_code == 403
    assert "origin" in answer.json()["error"]


# --- flags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "environment", "ui"),
    [
        ((), {}, True),
        (("--no-ui",), {}, False),
        (("--ui", "off"), {}, False),
        ((), {"UTTERWIRE_UI": "off"}, False),
        (("--ui", "on"), {"UTTERWIRE_UI": "off"}, True),
        (("--no-ui",), {"UTTERWIRE_UI": "on"}, False),
        (("serve", "--no-ui"), {}, False),
    ],
)
def test_how_the_page_is_turned_off(
    arguments: tuple[str, ...], environment: dict[str, str], ui: bool
) -> None:
    values = cli._parse(arguments, environment, cli._flags())
    assert cli._settings(values).ui is ui


def test_endpoints_that_are_allowed_add_up() -> None:
    arguments = ("--allow-endpoint", "ws://a:1", "--allow-endpoint", "https://b/tts,wss://c")
    values = cli._parse(arguments, {"UTTERWIRE_ALLOW_ENDPOINT": "ws://d"}, cli._flags())
    assert cli._settings(values).allowed_endpoints == {
        "http://a:1",
        "https://b/tts",
        "https://c",
        "http://d",
    }


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://h", "http://h"),
        ("WSS://h:1/", "https://h:1"),
        ("https://h/x/", "https://h/x"),
        (f"ws://[::1]:8080{SESSION}", "http://[::1]:8080"),
        ("http://h/x/invocations", "http://h/x"),
    ],
)
def test_addresses_of_endpoints(url: str, address: str) -> None:
    assert relay_address(url) == address
    assert relay_address(address) == address


@pytest.mark.parametrize(
    "url",
    [
        *("x", "h", "h:8080", "ftp://h", "ws://", "ws://h:x", "ws://h y", "ws://h\0", "ws://[::1"),
        *("ws://user:secret@h", "ws://h?token=secret", "ws://h#secret", "ws://h?"),
    ],
)
def test_what_is_no_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="address") as raised:
        relay_address(url)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert cli.main(["--allow-endpoint", url]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "secret" not in said


def test_an_endpoint_for_no_page_is_refused() -> None:
    with pytest.raises(ValueError, match="no page"):
        Settings(ui=False, allowed_endpoints=frozenset({"http://h"}))


# --- the relay ------------------------------------------------------------------------------------


@pytest.fixture
async def pair(start: Any) -> tuple[Any, Any]:
    """An endpoint, and a server that relays to it."""
    far = await start()
    near = await start(allowed_endpoints=frozenset({far.url}))
    return far, near


async def test_a_session_is_carried_as_it_is(pair: tuple[Any, Any], connect: Any) -> None:
    far, near = pair
    found = []
    for server, path in ((far, SESSION), (near, RELAYED + SESSION)):
        peer = await connect(server, path)
        assert peer.status == 101
        peer.say(type="hello", protocol_versions=[1])
        peer.send(b'{"text": "Hello there.", "marks": ["word"]}')
        peer.say(text="\u2026")
        peer.say(text=" ")
        peer.say(type="close")
        await peer.until("session_closed")
        kinds = [json.loads(data)["type"] for opcode, data in peer.frames if opcode is Opcode.TEXT]
        peer.send((1000).to_bytes(2, "big"), opcode=Opcode.CLOSE)
        found.append((peer.audio(), kinds, await peer.closed()))
    assert found[0] == found[1]
    assert found[0][0]


async def test_requests_are_carried_as_they_are(
    pair: tuple[Any, Any], client: httpx.AsyncClient
) -> None:
    far, near = pair
    for body, accept in (
        ({"text": "Hello.", "request_id": "é"}, "*/*"),
        ({"text": "Hello."}, "text/event-stream"),
        ({"text": "Hello.", "format": "wav", "stream": False}, "*/*"),
        ({"text": "Hello.", "voice": "nobody"}, "*/*"),
        ({"text": " "}, "text/event-stream"),
    ):
        headers = {"Accept": accept}
        direct, relayed = [
            await client.post(f"{address}/invocations", json=body, headers=headers)
            for address in (far.http, near.http + RELAYED)
        ]
        assert relayed.status_code == direct.status_code
        assert relayed.content == direct.content
        own = {"date", "content-length", "transfer-encoding", "cache-control"}
        # Whatever the endpoint says of it, it is never a page.
        own |= {"content-security-policy", "x-content-type-options"}
        assert "sandbox" in relayed.headers["content-security-policy"]
        assert relayed.headers["x-content-type-options"] == "nosniff"
        assert {k: v for k, v in relayed.headers.items() if k not in own} == {
            k: v for k, v in direct.headers.items() if k not in own
        }


async def test_only_what_is_allowed_and_only_for_own_pages(
    pair: tuple[Any, Any], connect: Any, client: httpx.AsyncClient
) -> None:
    _, near = pair
    assert (await connect(near, "/ui/relay/2" + SESSION)).status == 404
    body = {"text": "Hello."}
    assert (await client.post(f"{near.http}/ui/relay/2/invocations", json=body)).status_code == 404
    other = {"Origin": "https://evil.example.com"}
    for path in (RELAYED, ""):
        answer = await client.post(f"{near.http}{path}/invocations", json=body, headers=other)
        assert answer.status_code == 403
    refused = await connect(near, RELAYED + SESSION, headers="Origin: https://evil.example\r\n")
    assert refused.status == 403


async def test_an_endpoint_that_is_not_there(
    start: Any, connect: Any, client: httpx.AsyncClient
) -> None:
    near = await start(allowed_endpoints=frozenset({"ws://127.0.0.1:9"}))
    peer = await connect(near, RELAYED + SESSION)
    opcode, data = await peer.frame()
    assert opcode is Opcode.CLOSE
    assert data[:2] == (1014).to_bytes(2, "big")
    assert data[2:] == b"the endpoint cannot be reached (nothing listens there)"
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert answer.status_code == 502
    assert "cannot be reached" in answer.json()["message"]


async def test_what_is_no_endpoint(start: Any, connect: Any, client: httpx.AsyncClient) -> None:
    far = await start()
    near = await start(allowed_endpoints=frozenset({f"{far.http}/elsewhere"}))
    peer = await connect(near, RELAYED + SESSION)
    assert (await peer.frame())[1][2:] == b"the endpoint cannot be reached (HTTP status 404)"
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert answer.status_code == 404


async def test_an_answer_that_breaks_off_does_not_end_cleanly(
    start: Any, client: httpx.AsyncClient
) -> None:
    far = await start(load_engine("faulty", blocks=5))
    near = await start(allowed_endpoints=frozenset({far.url}))
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(
            f"{near.http}{RELAYED}/invocations", json={"text": "Hello there, who are you?"}
        )


async def test_who_leaves_the_relay_leaves_the_endpoint(
    start: Any, connect: Any, client: httpx.AsyncClient, held_engine: Any, eventually: Any
) -> None:
    far = await start(held_engine)
    near = await start(allowed_endpoints=frozenset({far.url}))
    peer = await connect(near, RELAYED + SESSION)
    peer.say(text="Hello.")
    asking = asyncio.create_task(
        client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    )
    await eventually(lambda: far.service.guests == near.service.guests == 2)
    await peer.leave()
    asking.cancel()
    await asyncio.wait({asking})
    await eventually(lambda: far.service.guests == near.service.guests == 0)


async def test_shutdown_ends_what_is_relayed(
    start: Any, connect: Any, client: httpx.AsyncClient, held_engine: Any, eventually: Any
) -> None:
    far = await start(held_engine)
    near = await start(allowed_endpoints=frozenset({far.url}))
    peer = await connect(near, RELAYED + SESSION)
    peer.say(text="Hello.")
    asking = asyncio.create_task(
        client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    )
    await eventually(lambda: far.service.guests == 2)
    near.runner.stop()
    assert await peer.closed() == 1001
    answer = await asking
    assert (answer.status_code, answer.json()["code"]) == (503, "going_away")


async def test_an_endpoint_that_vanishes_is_told(
    start: Any, connect: Any, held_engine: Any, eventually: Any
) -> None:
    far = await start(held_engine)
    near = await start(allowed_endpoints=frozenset({far.url}))
    peer = await connect(near, RELAYED + SESSION)
    peer.say(text="Hello.")
    await eventually(lambda: far.service.scheduler.backlog.places == 1)
    far.runner.stop()
    # With its last words before it.
    assert (await peer.until("error"))["code"] == "going_away"
    await peer.until("session_closed")
    assert await peer.closed() == 1001


async def test_a_body_that_is_too_large(pair: tuple[Any, Any], client: httpx.AsyncClient) -> None:
    _, near = pair
    limit = near.service.settings.max_message_bytes
    answer = await client.post(f"{near.http}{RELAYED}/invocations", content=b" " * (limit + 1))
    assert answer.status_code == 413
    assert answer.json()["code"] == "text_too_long"


async def test_without_httpx_sessions_are_relayed_still(
    pair: tuple[Any, Any],
    connect: Any,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    _, near = pair
    assert (await client.post(f"{near.http}/ui/state")).json()["http_relay"] is False
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert answer.status_code == 501
    assert "utterwire[page]" in answer.json()["message"]
    assert (await connect(near, RELAYED + SESSION)).status == 101


async def test_no_relay_while_there_is_no_room(
    start: Any, connect: Any, client: httpx.AsyncClient
) -> None:
    far = await start()
    near = await start(allowed_endpoints=frozenset({far.url}), max_sessions=1)
    await connect(near, RELAYED + SESSION)
    assert (await connect(near, RELAYED + SESSION)).status == 503
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


async def test_who_takes_nothing_is_dropped(
    start: Any, connect: Any, client: httpx.AsyncClient, eventually: Any
) -> None:
    far = await start()
    near = await start(allowed_endpoints=frozenset({far.url}), stall_timeout_s=0.3)
    peer = await connect(near, RELAYED + SESSION, receive_buffer=4_096)
    peer.say(text="Hello there. " * 300)
    await eventually(lambda: near.service.guests)
    await eventually(lambda: near.service.guests == far.service.guests == 0)


async def test_a_body_that_does_not_come(start: Any) -> None:
    near = await start(allowed_endpoints=frozenset({"ws://127.0.0.1:9"}), body_timeout_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", near.port)
    head = f"POST {RELAYED}/invocations HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{{"
    writer.write(head.encode())
    answer = (await reader.read()).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    assert "did not come in time" in answer
    writer.close()
    await writer.wait_closed()


# --- what an allowed endpoint may do --------------------------------------------------------------


async def test_an_endpoint_that_takes_nothing_is_left(start: Any, connect: Any) -> None:
    async def read_nothing(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve(read_nothing, "127.0.0.1", 0, max_queue=1, close_timeout=0.1) as far:
        url = f"ws://127.0.0.1:{far.sockets[0].getsockname()[1]}"
        near = await start(allowed_endpoints=frozenset({url}), stall_timeout_s=0.3)
        peer = await connect(near, RELAYED + SESSION)
        for _ in range(20):
            peer.send(b" " * 1_000_000)
        assert await peer.closed() == 1011


async def test_a_session_in_which_nobody_says_anything_ends(
    start: Any, connect: Any, eventually: Any
) -> None:
    far = await start()
    near = await start(allowed_endpoints=frozenset({far.url}), idle_timeout_s=0.5)
    peer = await connect(near, RELAYED + SESSION)
    assert await peer.closed() == 1001
    await eventually(lambda: near.service.guests == far.service.guests == 0)


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """An endpoint that answers every request so; its address."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        # All of it: who closes with unread data resets the connection, and its answer is lost.
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_what_is_compressed_is_carried_as_it_is(
    start: Any, client: httpx.AsyncClient
) -> None:
    body = gzip.compress(bytes(1_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n"
    head += b"Set-Cookie: a=b\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with answering(head + body) as url:
        near = await start(allowed_endpoints=frozenset({url}))
        address = f"{near.http}{RELAYED}/invocations"
        async with client.stream("POST", address, json={"text": "Hello."}) as answer:
            carried = b"".join([part async for part in answer.aiter_raw()])
    assert carried == body
    assert answer.headers["content-encoding"] == "gzip"
    # Nothing of it can act as a page of this server's.
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers


async def test_a_request_with_an_odd_accept_is_carried(
    pair: tuple[Any, Any], client: httpx.AsyncClient
) -> None:
    _, near = pair
    answer = await client.post(
        f"{near.http}{RELAYED}/invocations", json={"text": "Hello."}, headers=[(b"Accept", b"\xe9")]
    )
    assert answer.status_code == 200


async def test_an_address_that_no_name_can_have_is_told(
    start: Any, connect: Any, client: httpx.AsyncClient
) -> None:
    near = await start(allowed_endpoints=frozenset({"ws://a..b"}))
    peer = await connect(near, RELAYED + SESSION)
    assert (await peer.frame())[1][:2] == (1014).to_bytes(2, "big")
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert answer.status_code == 502


async def test_no_proxy_leads_to_this_machine(
    pair: tuple[Any, Any], connect: Any, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, near = pair
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    peer = await connect(near, RELAYED + SESSION)
    peer.say(text="Hello.")
    await peer.until("synthesis_complete")
    answer = await client.post(f"{near.http}{RELAYED}/invocations", json={"text": "Hello."})
    assert answer.status_code == 200
