"""`utterwire-router`: SageMaker streaming on this machine, without an AWS account."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from utterwire_conformance.command import printable, show
from utterwire_conformance.number import natural_number, positive_number, whole_number

from .faults import FAULTS, Plan
from .options import LOCAL_CREDENTIALS, Options
from .requisites import missing
from .signatures import Credentials

if TYPE_CHECKING:
    from .server import Router

__all__ = ["main", "router_parser"]

_PROGRAM: Final = "utterwire-router"
_ACCESS_KEY: Final = "UTTERWIRE_ROUTER_ACCESS_KEY"
_SECRET_KEY: Final = "UTTERWIRE_ROUTER_SECRET_KEY"
_PORT: Final = 8443
_USAGE: Final = 2

_SNIPPET: Final = """\
import asyncio

from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from aws_sdk_sagemaker_runtime_http2.models import (
    InvokeEndpointWithBidirectionalStreamInput,
    RequestPayloadPart,
    RequestStreamEventPayloadPart,
)
from smithy_http.aio.crt import AWSCRTHTTPClient


async def main():
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri="{url}", region="us-east-1", transport=AWSCRTHTTPClient()
    )
    async with AsyncSageMakerRuntimeHTTP2Client(config=config) as client:
        stream = await client.invoke_endpoint_with_bidirectional_stream(
            InvokeEndpointWithBidirectionalStreamInput(endpoint_name="tts")
        )
        for message in (b'{{"text": "Hello."}}', b'{{"type": "close"}}'):
            await stream.input_stream.send(
                RequestStreamEventPayloadPart(
                    value=RequestPayloadPart(bytes_=message, data_type="UTF8")
                )
            )
        _, output = await stream.await_output()
        while (event := await output.receive()) is not None:
            part = event.value
            print(part.data_type, part.bytes_ if part.data_type == "UTF8" else len(part.bytes_))
            if b"session_closed" in (part.bytes_ or b""):
                await stream.input_stream.close()


asyncio.run(main())
"""


def _port_number(text: str) -> int:
    number = natural_number(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: the largest is 65535")
    return number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"{_PROGRAM}: {message}\n")


def router_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    standard = Options()
    parser = _Parser(
        prog=_PROGRAM,
        description="A local stand-in for the SageMaker runtime: AWS SDKs speak to it, and it to"
        " your container, as SageMaker does (spec/sagemaker.md).",
        epilog="What is marked (not documented) AWS does not say; the default is a guess.",
    )
    parser.add_argument(
        "--to",
        metavar="URL",
        default="http://127.0.0.1:8080",
        help="the container (default: %(default)s)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=_port_number, default=_PORT, help="port; 0 for any (default: %(default)s)"
    )
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        type=Path,
        help="where the authority is kept; made on first use (default: ~/.cache/utterwire/router)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check the signatures of requests and events; the keys are"
        f" {LOCAL_CREDENTIALS.access_key} and {LOCAL_CREDENTIALS.secret_key}, unless {_ACCESS_KEY}"
        f" and {_SECRET_KEY} name others",
    )
    parser.add_argument("--quiet", action="store_true", help="no line for each call and stream")
    parser.add_argument("--snippet", action="store_true", help="print a program to try, and end")
    faults = parser.add_argument_group("faults")
    faults.add_argument("--list", action="store_true", help="show the faults, and end")
    faults.add_argument(
        "--fault",
        metavar="NAME",
        action="append",
        default=[],
        help="for calls to every endpoint; may be given several times. Without it, an endpoint"
        " called fault-NAME has that fault",
    )
    faults.add_argument(
        "--after",
        metavar="PARTS",
        type=natural_number,
        default=3,
        help="a fault in a stream comes after so many parts to the caller (default: %(default)s)",
    )
    faults.add_argument(
        "--times", metavar="N", type=whole_number, help="how often faults come (default: always)"
    )
    faults.add_argument(
        "--slow-ms",
        metavar="MS",
        type=positive_number,
        default=standard.slow_s * 1000,
        help="how long slow-parts holds up each part (default: %(default)g)",
    )
    platform = parser.add_argument_group("the platform")
    platform.add_argument(
        "--accept-ms",
        metavar="MS",
        type=positive_number,
        default=standard.accept_s * 1000,
        help="for the container to accept a connection (default: %(default)g)",
    )
    platform.add_argument(
        "--ping-interval",
        metavar="S",
        type=positive_number,
        default=standard.ping_interval_s,
        help="between two pings to the container (default: %(default)g)",
    )
    platform.add_argument(
        "--missed-pongs",
        metavar="N",
        type=whole_number,
        default=standard.missed_pongs,
        help="after so many the container is given up (default: %(default)s)",
    )
    platform.add_argument(
        "--normal-close",
        choices=("error", "end"),
        default=standard.normal_close,
        help="what a close with code 1000 becomes (not documented; default: %(default)s)",
    )
    platform.add_argument(
        "--lost-container",
        choices=("ModelStreamError", "InternalStreamFailure"),
        default=standard.lost_container,
        help="what a container that goes without a close frame becomes (not documented;"
        " default: %(default)s)",
    )
    platform.add_argument(
        "--at-input-end",
        choices=("close", "nothing"),
        default=standard.at_input_end,
        help="what the container sees when the caller ends its input: a close frame, or nothing"
        " (not documented; default: %(default)s)",
    )
    platform.add_argument(
        "--most-part-bytes",
        metavar="N",
        type=whole_number,
        default=standard.most_part_bytes,
        help="the largest part of a caller (not documented; default: %(default)s)",
    )
    return parser


def _options(arguments: argparse.Namespace) -> Options:
    credentials = None
    if arguments.verify:
        credentials = Credentials(
            os.environ.get(_ACCESS_KEY) or LOCAL_CREDENTIALS.access_key,
            os.environ.get(_SECRET_KEY) or LOCAL_CREDENTIALS.secret_key,
        )
    return Options(
        credentials=credentials,
        accept_s=arguments.accept_ms / 1000,
        ping_interval_s=arguments.ping_interval,
        missed_pongs=arguments.missed_pongs,
        normal_close=arguments.normal_close,
        lost_container=arguments.lost_container,
        at_input_end=arguments.at_input_end,
        most_part_bytes=arguments.most_part_bytes,
        slow_s=arguments.slow_ms / 1000,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a router until it is interrupted; the exit status: 2 for wrong usage."""
    # Where it cannot run at all, that is all there is to say, also to --help.
    lacking = missing()
    if lacking is not None:
        return _complain(lacking)
    given = router_parser().parse_args(arguments)
    if given.list:
        show(f"{fault.name:<26}{fault.what}" for fault in FAULTS.values())
        return 0
    if given.snippet:
        show(_SNIPPET.format(url=f"https://localhost:{given.port}").splitlines())
        return 0
    try:
        plan = Plan(*given.fault, after=given.after, times=given.times)
        return asyncio.run(_serve(given, _options(given), plan))
    except ValueError as error:
        return _complain(str(error))
    except OSError as error:
        if error.errno is None:
            return _complain(str(error))
        # A name that is not found has a number that is none of the system's.
        known = error.errno in errno.errorcode
        why = os.strerror(error.errno) if known else error.strerror
        return _complain(f"{given.host}:{given.port}: {why}")
    except KeyboardInterrupt:
        return 0


async def _serve(given: argparse.Namespace, options: Options, plan: Plan) -> int:
    from .certificates import default_folder, tls_files, tls_server_context
    from .server import Router

    ca_file, authority = tls_files(given.certificates or default_folder())
    router = Router(
        given.to,
        tls_server_context(authority, given.host),
        options=options,
        plan=plan,
        host=given.host,
        port=given.port,
        log=None if given.quiet else _log,
    )
    async with router:
        show(_greeting(router, ca_file, given.to))
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Signals are for the main thread alone.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, asked.set)
        await asked.wait()
    return 0


def _greeting(router: Router, ca_file: Path, container: str) -> list[str]:
    keys = router.options.credentials or LOCAL_CREDENTIALS
    # Keys of somebody's own are not repeated.
    shown = keys.secret_key if keys == LOCAL_CREDENTIALS else "..."
    checked = "checked" if router.options.credentials is not None else "not checked"
    keys_line = f"AWS_ACCESS_KEY_ID={keys.access_key} AWS_SECRET_ACCESS_KEY={shown}"
    address = f"sagemaker:tts?region=us-east-1&endpoint_url={router.url}"
    program = f"{_PROGRAM} --snippet --port {router.port}"
    lines = [
        f"SageMaker runtime at {router.url}, container at {container}; signatures are {checked}.",
        "Any endpoint name will do. In the shell of who calls:",
        "",
        f"  export SSL_CERT_FILE={ca_file} AWS_CA_BUNDLE={ca_file}",
        f"  export {keys_line} AWS_DEFAULT_REGION=us-east-1",
        f"  utterwire say 'Hello.' --endpoint '{address}' -o hello.wav",
        "",
        f"or, in Python with the AWS SDK (`{program}` prints this program):",
        "",
        *(f"  {line}".rstrip() for line in _SNIPPET.format(url=router.url).splitlines()),
        "",
    ]
    if router.plan.faults:
        lines.append(f"faults: {', '.join(fault.name for fault in router.plan.faults)}")
    return lines


def _log(line: str) -> None:
    show([printable(line)])


def _complain(text: str) -> int:
    print(f"{_PROGRAM}: {printable(text)}", file=sys.stderr)
    return _USAGE


if __name__ == "__main__":
    raise SystemExit(main())
