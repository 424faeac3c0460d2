"""A session that is opened by the first who asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from utterwire_client import Backend, ConnectFailed, Session
from utterwire_client.http import HttpBackend
from utterwire_client.shared_session import SharedSession


async def test_who_asks_at_the_same_time_gets_the_same() -> None:
    opened: list[Backend] = []
    closed: list[Backend] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[Backend]:
        backend = HttpBackend("ws://127.0.0.1:1")
        opened.append(backend)
        await asyncio.sleep(0)
        yield backend
        closed.append(backend)

    shared = SharedSession(opening)
    assert opened == []
    both = await asyncio.gather(shared.get(), shared.get())
    assert both[0] is both[1] is opened[0]
    assert len(opened) == 1
    await shared.aclose()
    assert closed == opened
    assert await shared.get() is opened[1]
    await shared.aclose()
    assert closed == opened
    await shared.aclose()
    assert len(closed) == 2


async def test_what_could_not_be_opened_is_tried_again() -> None:
    tries = 0

    @asynccontextmanager
    async def opening() -> AsyncIterator[Backend]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectFailed("no", retryable=True)
        yield HttpBackend("ws://127.0.0.1:1")

    shared = SharedSession(opening)
    with pytest.raises(ConnectFailed):
        await shared.get()
    assert isinstance(await shared.get(), HttpBackend)
    await shared.aclose()


async def test_an_address_opens_a_session(endpoint: Any) -> None:
    shared = SharedSession(await endpoint(lambda peer: peer.gone()))
    session = await shared.get()
    assert isinstance(session, Session)
    await shared.aclose()
    assert session.closed


async def test_what_is_being_opened_is_ended_too() -> None:
    closed = asyncio.Event()
    may_open = asyncio.Event()

    @asynccontextmanager
    async def opening() -> AsyncIterator[Backend]:
        await may_open.wait()
        yield HttpBackend("ws://127.0.0.1:1")
        closed.set()

    shared = SharedSession(opening)
    getting = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    ending = asyncio.create_task(shared.aclose())
    await asyncio.sleep(0)
    may_open.set()
    await asyncio.gather(getting, ending)
    assert closed.is_set()
