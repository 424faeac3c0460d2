"""Makes an endpoint far away: every octet takes so long to get through, in both directions.

python far_proxy.py TO_PORT SECONDS

It prints the port at which it listens.
"""

# mypy: ignore-errors
import asyncio
import socket
import sys
from contextlib import suppress


async def carry(reader, writer, seconds):
    loop = asyncio.get_running_loop()
    under_way = asyncio.Queue(4)

    async def deliver():
        while True:
            due, octets = await under_way.get()
            await asyncio.sleep(due - loop.time())
            if not octets:
                writer.close()
                return
            writer.write(octets)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        while octets := await reader.read(65536):
            await under_way.put((loop.time() + seconds, octets))
        await under_way.put((loop.time() + seconds, b""))
        await delivering
    except OSError:
        writer.close()
    finally:
        delivering.cancel()


async def serve(to_port, seconds):
    async def accept(reader, writer):
        # Little is under way, as in a net: a proxy that took all would hide who does not read.
        near = writer.get_extra_info("socket")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        writer.transport.set_write_buffer_limits(65536)
        # A connection is there after one round trip.
        await asyncio.sleep(2 * seconds)
        with suppress(OSError, ExceptionGroup):
            far = socket.socket()
            far.setblocking(False)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", to_port))
            far_reader, far_writer = await asyncio.open_connection(sock=far)
            async with asyncio.TaskGroup() as group:
                group.create_task(carry(reader, far_writer, seconds))
                group.create_task(carry(far_reader, writer, seconds))
            far_writer.close()
        writer.close()

    tasks = set()

    def hold(reader, writer):
        task = asyncio.create_task(accept(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
