"""A peer that opens sessions and then says nothing at all, for a suite that must not hang."""

# mypy: ignore-errors
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute


async def session(socket):
    await socket.accept()
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def ping(request):
    return Response()


app = Starlette(
    routes=[
        Route("/ping", ping),
        WebSocketRoute("/invocations-bidirectional-stream", session),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), ws="websockets-sansio", log_level="error")
