"""`utterwire-conformance proxy`: a faulty endpoint, or an odd one, made out of a good one."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Sequence

from utterwire_conformance.command import Parser, printable
from utterwire_conformance.proxy import FaultProxy, Tampers

from .fault import Fault
from .oddity import Combined, Oddity

__all__ = ["main_proxy"]


def main_proxy(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for arguments it cannot use.

    It prints the addresses it listens on, then serves until it is interrupted.
    """
    from . import FAULTS, ODDITIES  # the package imports this module

    parser = Parser(
        prog="utterwire-conformance proxy",
        description="Stand between a client and an endpoint and break one rule, or break none and"
        " make legal choices that few endpoints make.",
    )
    parser.add_argument("--list", action="store_true", help="explain the faults and the oddities")
    parser.add_argument("--fault", metavar="NAME", help="the fault; none: change nothing")
    parser.add_argument(
        "--oddity",
        metavar="NAME",
        action="append",
        help="a legal oddity; more than once for several, `all` for all of them",
    )
    parser.add_argument("--to", metavar="URL", help="the endpoint (ws, wss, http or https)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates to trust for --to")
    try:
        options = parser.parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    if options.list:
        _list(list(FAULTS.values()), list(ODDITIES.values()))
        return 0
    if not 0 <= options.port < 65_536:
        return _refuse(f"--port {options.port}: there are ports from 0 to 65535")
    if options.to is None:
        return _refuse("say with --to which endpoint to stand in front of")
    if options.ca_file == "":
        return _refuse("--ca-file: which file?")
    if options.fault is not None and options.oddity:
        return _refuse("choose --fault or --oddity: what is legal and what is not would mix")
    tampers: Tampers | None = None
    if options.fault is not None:
        tampers = FAULTS.get(options.fault)
        if tampers is None:
            return _refuse(f"there is no fault {options.fault!r}; --list names them")
    if options.oddity:
        names = list(ODDITIES) if "all" in options.oddity else options.oddity
        unknown = next((name for name in names if name not in ODDITIES), None)
        if unknown is not None:
            return _refuse(f"there is no oddity {unknown!r}; --list names them")
        tampers = Combined([ODDITIES[name] for name in names])
    try:
        tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else None
        proxy = FaultProxy(options.to, tampers, host=options.host, port=options.port, tls=tls)
    except OSError as error:  # ssl.SSLError, of a file that holds no certificate, is one
        return _refuse(f"--ca-file {options.ca_file}: {error.strerror or error}")
    except ValueError as error:
        return _refuse(str(error))
    try:
        asyncio.run(_serve(proxy))
    except OSError as error:
        return _refuse(f"cannot listen on {options.host}:{options.port}: {error.strerror}")
    except KeyboardInterrupt:
        pass
    return 0


async def _serve(proxy: FaultProxy) -> None:
    async with proxy:
        print(f"{proxy.ws_url} {proxy.http_url}", flush=True)
        await asyncio.Event().wait()


def _list(faults: list[Fault], oddities: list[Oddity]) -> None:
    lines = [
        f"{fault.name}\n    {fault.explanation}\n    breaks {', '.join(fault.breaks)}"
        for fault in faults
    ]
    lines.append("\nLegal oddities (--oddity), which break nothing:\n")
    lines += [
        f"{oddity.name}\n    {oddity.explanation}\n    legal by {oddity.clause}"
        for oddity in oddities
    ]
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # Whoever reads has seen enough; what is flushed at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(reason: str) -> int:
    print(f"utterwire-conformance proxy: {printable(reason)}", file=sys.stderr)
    return 2
