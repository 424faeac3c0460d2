"""Sessions over SageMaker's bidirectional streaming (``sagemaker.md``), by the AWS SDK.

Needs Python 3.12 and the extra ``aws``. A message is a part, and a part is a message, unless its
``CompletionState`` says that more follows. The input stays open until the session has ended.

What the client reads is not held up toward the endpoint: the SDK reads on, so that audio which
nobody takes waits in the memory of this process.
"""

import asyncio
import contextlib
import logging
import math
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import boto3
import botocore.exceptions
import urllib3.exceptions
from aws_sdk_sagemaker_runtime_http2 import models
from aws_sdk_sagemaker_runtime_http2.client import AsyncSageMakerRuntimeHTTP2Client
from aws_sdk_sagemaker_runtime_http2.config import AsyncSageMakerRuntimeHTTP2Config
from awscrt.exceptions import AwsCrtError
from awscrt.io import ClientTlsContext, TlsContextOptions
from botocore.config import Config
from smithy_aws_core.identity import AWSCredentialsIdentity
from smithy_aws_event_stream.exceptions import UnmodeledEventError
from smithy_core.exceptions import CallError, SmithyError
from smithy_http.aio.crt import (
    AWSCRTHTTPClient,
    AWSCRTHTTPClientConfig,
    _AWSCRTEventLoop,
)

from utterwire_client.address import SageMakerAddress
from utterwire_client.errors import (
    AccessDenied,
    ConnectFailed,
    ContainerRefused,
    CredentialsUnusable,
    DeadlineExceeded,
    EndpointMissing,
    EndpointNotReady,
    InvocationInvalid,
    PlatformFailed,
    PlatformUnavailable,
    RequestInvalid,
    Throttled,
)
from utterwire_client.transport import TransportClosed

__all__ = ["Invocation", "SageMakerTransport", "describe", "invoke", "open_sagemaker"]

T = TypeVar("T")

# The platform's own port of this operation; the SDK's resolver leaves it out.
_PORT = 8443
_MOST_MESSAGE_BYTES = 16 * 1024 * 1024
# Messages that were read and not taken yet.
_MOST_WAITING = 4
_CLOSE_S = 2.0
_DISCONNECT_S = 10.0
_GIVE_UP_S = 0.2
_BODY_TASK = "_set_request_body_generator"

_SERVING = frozenset({"InService", "Updating", "SystemUpdating", "RollingBack"})
_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_DENIED = frozenset({"AccessDenied", "AccessDeniedException"})
_THROTTLED = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException"})
_INVALID = frozenset({"InputValidationError", "ValidationError", "ValidationException"})
_FAILED = frozenset({"InternalServerError", "InternalFailure", "InternalFailureException"})
_UNAVAILABLE = frozenset({"ServiceUnavailableError", "ServiceUnavailable"})
_UNMODELED = re.compile(r"status: (\d{3}) - id: [^#\s]*#(\w+)")

# Endpoints that were seen in service: asked about once, not before every session.
_seen: set[SageMakerAddress] = set()
_asking = threading.Lock()

# The SDK logs what it also raises.
for _name in ("smithy_core", "smithy_aws_core", "aws_sdk_sagemaker_runtime_http2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class SageMakerTransport:
    """A :class:`~utterwire_client.transport.Transport` over one bidirectional stream."""

    def __init__(
        self, client: AsyncSageMakerRuntimeHTTP2Client, stream: Any, output: Any, *, close_s: float
    ) -> None:
        self._client = client
        self._stream = stream
        self._output = output
        self._close_s = min(close_s, _CLOSE_S)
        self._messages: deque[str | bytes] = deque()
        self._over: TransportClosed | None = None
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        # The SDK's stream does not outlive a reading that is cancelled: one task reads it all.
        self._reader = asyncio.create_task(self._read(), name="utterwire-sagemaker-read")
        self._dropped = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None

    async def send(self, message: str) -> None:
        if self._over is not None:
            raise self._over
        part = models.RequestPayloadPart(bytes_=message.encode(), data_type="UTF8")
        try:
            await self._stream.input_stream.send(models.RequestStreamEventPayloadPart(value=part))
        except (OSError, SmithyError, AwsCrtError) as exc:
            raise self._over or TransportClosed(f"the stream broke: {_line(exc)}") from None

    async def receive(self) -> str | bytes:
        while not self._messages:
            if self._over is not None:
                raise self._over
            self._changed.clear()
            await self._changed.wait()
        self._taken.set()
        return self._messages.popleft()

    async def close(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(gently=True), name="utterwire-sagemaker")
        await asyncio.wait({self._ending})

    def abort(self) -> None:
        self._finish(TransportClosed("the session was dropped"))
        if not self._dropped.done():
            self._dropped.set_result(None)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(gently=False), name="utterwire-sagemaker")

    async def _end(self, *, gently: bool) -> None:
        if gently:
            # What the endpoint sent before its end is read, too.
            self._taken.set()
            drain = asyncio.create_task(self._drain())
            await _bounded(self._stream.input_stream.close, self._close_s)
            await asyncio.wait(
                {self._reader, self._dropped},
                timeout=self._close_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            drain.cancel()
            await asyncio.wait({drain})
        self._finish(TransportClosed("the session was closed"))
        if not gently:
            await _bounded(self._stream.input_stream.close, self._close_s)
        # Ends the connection, and with it what is left of the stream and the reading of it. What
        # the SDK waits for is not cancelled before: it would set that all the same, when more of
        # the body comes, and print a traceback. None of this needs the endpoint.
        ending = asyncio.create_task(self._client.__aexit__(None, None, None))
        ending.add_done_callback(_retrieve)
        await asyncio.wait({ending, self._reader}, timeout=_DISCONNECT_S)
        self._reader.cancel()
        await asyncio.wait({self._reader})
        await _bounded(self._output.close, self._close_s)

    async def _drain(self) -> None:
        with contextlib.suppress(TransportClosed):
            while True:
                await self.receive()

    async def _read(self) -> None:
        try:
            async for message in self._parts():
                while len(self._messages) >= _MOST_WAITING and self._over is None:
                    self._taken.clear()
                    await self._taken.wait()
                self._messages.append(message)
                self._changed.set()
            self._finish(TransportClosed("the stream ended"))
        except models.ModelStreamError as exc:
            code = exc.error_code or ""
            told = f" with code {code}" if code else ""
            said = f": {exc.message!r}" if exc.message else ""
            self._finish(
                TransportClosed(
                    f"the container closed the stream{told}{said} (ModelStreamError)",
                    code=int(code) if code.isascii() and code.isdigit() else None,
                    error="ModelStreamError",
                )
            )
        except models.InternalStreamFailure as exc:
            self._finish(
                TransportClosed(
                    f"the platform failed: {exc.message or 'no reason'} (InternalStreamFailure)",
                    error="InternalStreamFailure",
                )
            )
        except UnmodeledEventError as exc:
            self._finish(TransportClosed(f"the platform ended the stream: {_line(exc)}"))
        except (OSError, CallError, SmithyError, AwsCrtError) as exc:
            self._finish(TransportClosed(f"the stream broke: {_line(exc)}"))
        finally:
            self._finish(TransportClosed("the session failed"))

    async def _parts(self) -> AsyncIterator[str | bytes]:
        """Whole messages out of the parts."""
        pieces: list[bytes] = []
        size, kind = 0, None
        # Once the session is over nobody takes what comes.
        while self._over is None and (event := await self._output.receive()) is not None:
            part = event.value if hasattr(event, "value") else None
            if not isinstance(part, models.ResponsePayloadPart):
                continue
            if not pieces:
                kind = part.data_type
            # An empty payload comes as None.
            pieces.append(part.bytes_ or b"")
            size += len(pieces[-1])
            if size > _MOST_MESSAGE_BYTES:
                raise OSError("a message of more than 16 MiB came")
            if part.completion_state == "PARTIAL":
                continue
            data = b"".join(pieces)
            pieces, size = [], 0
            if kind == "UTF8":
                try:
                    yield data.decode()
                except UnicodeDecodeError:
                    raise OSError("a part of text is no UTF-8") from None
            else:
                yield data

    def _finish(self, end: TransportClosed) -> None:
        if self._over is None:
            self._over = end
        self._changed.set()
        self._taken.set()


async def open_sagemaker(
    address: SageMakerAddress, *, connect_s: float, close_s: float
) -> SageMakerTransport:
    """Open a session at an endpoint, after a look at whether it is in service.

    ``connect_s`` bounds the whole of it, ``close_s`` the end later, in seconds. Credentials come by
    boto3's chain.

    Raises :class:`RequestInvalid`, :class:`DeadlineExceeded`, and for what AWS answers a type of
    its own, each of them a :class:`ConnectFailed`.
    """
    try:
        async with asyncio.timeout(None if math.isinf(connect_s) else connect_s):
            session = await asyncio.to_thread(_session, address)
            await asyncio.to_thread(_check_in_service, session, address)
            return await _open(session, address, close_s=close_s)
    except TimeoutError as exc:
        if isinstance(exc, DeadlineExceeded):
            raise
        # The SDK says nothing of a certificate that it does not trust: it tries for ever.
        hint = ""
        if address.endpoint_url is not None:
            hint = f": is {address.endpoint_url} trusted (ca_file, or SSL_CERT_FILE)?"
        raise DeadlineExceeded(
            f"no stream to {address} within {connect_s:g} s{hint}",
            which="connect",
            seconds=connect_s,
        ) from None


async def _open(session: Any, address: SageMakerAddress, *, close_s: float) -> SageMakerTransport:
    credentials = session.get_credentials()
    config = await AsyncSageMakerRuntimeHTTP2Config.resolve(
        endpoint_uri=address.endpoint_url or _endpoint_url(session),
        region=session.region_name,
        aws_credentials_identity_resolver=_Identity(credentials),
        transport=_http_client(address.ca_file),
        max_attempts=1,
    )
    client = AsyncSageMakerRuntimeHTTP2Client(config=config)
    await client.__aenter__()
    stream = None
    try:
        stream = await client.invoke_endpoint_with_bidirectional_stream(
            models.InvokeEndpointWithBidirectionalStreamInput(
                endpoint_name=address.name, target_variant=address.variant
            )
        )
        _, output = await stream.await_output()
        _own_body_tasks()
        return SageMakerTransport(client, stream, output, close_s=close_s)
    except BaseException as exc:
        _own_body_tasks()
        if stream is not None:
            # Where no connection was made, nobody takes the end of the input either.
            await _bounded(stream.input_stream.close, _GIVE_UP_S)
        await _bounded(lambda: client.__aexit__(None, None, None), _CLOSE_S)
        if isinstance(exc, (CallError, SmithyError, AwsCrtError, OSError)) and not isinstance(
            exc, TimeoutError
        ):
            raise _refused(exc, address) from exc
        raise


class _Identity:
    """Credentials of boto3's chain for the SDK; temporary ones are renewed where they can be."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def get_identity(self, *, properties: Any) -> AWSCredentialsIdentity:
        frozen = await asyncio.to_thread(self._credentials.get_frozen_credentials)
        return AWSCredentialsIdentity(
            access_key_id=frozen.access_key,
            secret_access_key=frozen.secret_key,
            session_token=frozen.token,
        )


@cache
def _threads() -> _AWSCRTEventLoop:
    """The SDK's threads, one set for all sessions of a process."""
    return _AWSCRTEventLoop()


def _http_client(ca_file: Path | None) -> AWSCRTHTTPClient:
    settings = AWSCRTHTTPClientConfig(force_http_2=True)
    client = AWSCRTHTTPClient(eventloop=_threads(), client_config=settings)
    if ca_file is not None:
        options = TlsContextOptions()
        options.override_default_trust_store_from_path(None, str(ca_file))
        # There is no setting for it in this version of the SDK, which is why the version is pinned.
        client._tls_ctx = ClientTlsContext(options)
    return client


def _endpoint_url(session: Any) -> str:
    resolver = session._session.get_component("endpoint_resolver")
    found = resolver.construct_endpoint("sagemaker-runtime", session.region_name)
    suffix = (found or {}).get("dnsSuffix", "amazonaws.com")
    return f"https://runtime.sagemaker.{session.region_name}.{suffix}:{_PORT}"


def _own_body_tasks() -> None:
    """See to it that nothing is said of the tasks by which the SDK sends a body.

    It leaves them to themselves, so that one which finds its stream ended prints a traceback;
    what ended the stream is told by the stream.
    """
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if getattr(coroutine, "__name__", "") == _BODY_TASK:
            task.add_done_callback(_retrieve)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()


# --- what boto3 does ------------------------------------------------------------------------------


def _session(address: SageMakerAddress) -> Any:
    try:
        session = boto3.Session(profile_name=address.profile, region_name=address.region)
        if not session.region_name:
            raise RequestInvalid(f"{address} has no region: give region, or set AWS_DEFAULT_REGION")
        credentials = session.get_credentials()
        if credentials is None:
            raise CredentialsUnusable(
                "there are no AWS credentials: run `aws configure`, or give a profile"
            )
        # Some (of a sign-in, of a role) are fetched only when they are asked for. The SDK would
        # wait for ever for those that cannot be, and a call would tell of another failure.
        credentials.get_frozen_credentials()
        return session
    except botocore.exceptions.ProfileNotFound:
        raise RequestInvalid(f"there is no AWS profile {address.profile!r}") from None
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as exc:
        raise CredentialsUnusable(
            f"no AWS credentials: {_line(exc)}: sign in again, or look at the profile"
        ) from exc


def _api(session: Any, service: str, address: SageMakerAddress, **settings: Any) -> Any:
    return session.client(
        service,
        endpoint_url=address.endpoint_url,
        verify=None if address.ca_file is None else str(address.ca_file),
        config=Config(retries={"total_max_attempts": 1}, **settings),
    )


async def describe(address: SageMakerAddress) -> str:
    """The status of an endpoint that takes calls, ``InService`` as a rule.

    Raises :class:`EndpointMissing`, :class:`EndpointNotReady`, and as :func:`open_sagemaker`.
    """

    def ask() -> str:
        session = _session(address)
        try:
            return _status(session, address)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as exc:
            raise _refused(exc, address) from exc

    return await asyncio.to_thread(ask)


def _check_in_service(session: Any, address: SageMakerAddress) -> None:
    # One at a time: sessions that are opened together need no more than one answer.
    with _asking:
        if address in _seen:
            return
        try:
            _status(session, address)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as exc:
            failure = _refused(exc, address)
            # Who may call an endpoint need not be allowed to ask about it.
            if not isinstance(failure, (AccessDenied, Throttled)):
                raise failure from exc
        _seen.add(address)


def _status(session: Any, address: SageMakerAddress) -> str:
    api = _api(session, "sagemaker", address)
    try:
        found: Mapping[str, Any] = api.describe_endpoint(EndpointName=address.name)
    except botocore.exceptions.ClientError as exc:
        if "could not find" in str(exc).lower():
            raise EndpointMissing(
                f"there is no endpoint {address.name} in {session.region_name}: check its name, "
                "the region and the account"
            ) from None
        raise
    finally:
        api.close()
    status = str(found.get("EndpointStatus"))
    if status in _SERVING:
        return status
    if status == "Failed":
        reason = _line(found.get("FailureReason") or "no reason was given")
        raise EndpointNotReady(f"endpoint {address.name} is Failed: {reason}", state=status)
    if status == "Creating":
        raise EndpointNotReady(
            f"endpoint {address.name} is Creating: try again when it is InService",
            state=status,
            retryable=True,
        )
    raise EndpointNotReady(f"endpoint {address.name} is {status}: it takes no calls", state=status)


class Invocation:
    """The answer to one ``InvokeEndpointWithResponseStream``, as it comes."""

    status_code = 200

    def __init__(self, api: Any, answer: Mapping[str, Any]) -> None:
        self._api = api
        self._body = answer["Body"]
        self.headers: dict[str, str] = {"content-type": answer.get("ContentType") or ""}

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        """The body piece by piece; raises :class:`ConnectionError` where it was cut off."""
        events = iter(self._body)
        while True:
            try:
                event = await asyncio.to_thread(next, events, None)
            except (
                botocore.exceptions.EventStreamError,
                botocore.exceptions.BotoCoreError,
                # Of a body that is read event by event botocore wraps nothing.
                urllib3.exceptions.HTTPError,
                OSError,
            ) as exc:
                raise ConnectionError(_line(exc)) from exc
            if event is None:
                return
            for name in ("ModelStreamError", "InternalStreamFailure"):
                if name in event:
                    raise ConnectionError(f"{name}: {event[name].get('Message')}")
            data = event.get("PayloadPart", {}).get("Bytes")
            if data:
                yield data

    async def aclose(self) -> None:
        """Give the answer up, or be done with it."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, for who cannot wait."""
        with contextlib.suppress(Exception):
            self._body.close()
        self._api.close()


async def invoke(
    address: SageMakerAddress, body: bytes, *, accept: str, deadline_s: float
) -> Invocation:
    """Ask for one utterance by ``InvokeEndpointWithResponseStream``.

    ``deadline_s`` bounds each wait for the network, in seconds. Raises as :func:`open_sagemaker`.
    """

    def ask() -> Invocation:
        session = _session(address)
        _check_in_service(session, address)
        waits: dict[str, Any] = {}
        if not math.isinf(deadline_s):
            waits = {"read_timeout": deadline_s, "connect_timeout": deadline_s}
        api = _api(session, "sagemaker-runtime", address, **waits)
        named = {} if address.variant is None else {"TargetVariant": address.variant}
        try:
            answer = api.invoke_endpoint_with_response_stream(
                EndpointName=address.name,
                Body=body,
                ContentType="application/json",
                Accept=accept,
                **named,
            )
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as exc:
            api.close()
            raise _refused(exc, address) from exc
        return Invocation(api, answer)

    asking = asyncio.ensure_future(asyncio.to_thread(ask))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        # A thread cannot be stopped: what it gets nobody wants any more.
        asking.add_done_callback(_give_up)
        raise


def _give_up(asking: "asyncio.Future[Invocation]") -> None:
    if not asking.cancelled() and asking.exception() is None:
        asking.result().close()


# --- what went wrong ------------------------------------------------------------------------------


def _refused(exc: BaseException, address: SageMakerAddress) -> ConnectFailed:
    """The type that stands for an error of AWS, whichever SDK raised it."""
    name, message, status = type(exc).__name__, _line(exc), None
    original: tuple[int | None, str | None] = (None, None)
    if isinstance(exc, botocore.exceptions.ClientError):
        error = exc.response.get("Error", {})
        name, message = error.get("Code", name), error.get("Message", message)
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        original = (
            exc.response.get("OriginalStatusCode"),
            exc.response.get("OriginalMessage"),
        )
    elif isinstance(exc, CallError):
        message = exc.message or message
        original = (
            getattr(exc, "original_status_code", None),
            getattr(exc, "original_message", None),
        )
        found = _UNMODELED.search(message)
        if found is not None:
            name, status = found[2], int(found[1])
            message = name
    elif isinstance(exc, (AwsCrtError, botocore.exceptions.BotoCoreError, OSError, SmithyError)):
        return _unreachable(exc, address)
    return _typed(name, _line(message), address, status, original)


def _typed(
    name: str,
    said: str,
    address: SageMakerAddress,
    status: int | None,
    original: tuple[int | None, str | None],
) -> ConnectFailed:
    told = f"{said} ({name})" if said != name else name
    if name in _CREDENTIALS:
        return CredentialsUnusable(
            f"AWS does not accept the credentials: {told}: renew them, check the clock",
            status=status,
        )
    if name in _DENIED:
        return AccessDenied(
            f"these credentials may not call {address.name}: {told}: allow "
            "sagemaker:InvokeEndpointWithBidirectionalStream and sagemaker:InvokeEndpoint",
            status=status,
        )
    if name in _THROTTLED:
        return Throttled(f"too many calls to {address.name}: {told}", status=429, retryable=True)
    if name in _INVALID:
        if "not found" in said.lower():
            return EndpointMissing(f"there is no endpoint {address.name}: {told}", status=400)
        return InvocationInvalid(f"the call was malformed: {told}", status=400)
    if name == "ModelError":
        return ContainerRefused(
            f"the container refused or failed: {told}",
            status=424,
            original_status=original[0] or None,
            original_message=original[1],
            retryable=original[0] in (None, 0, 429, 503),
        )
    if name in _UNAVAILABLE:
        return PlatformUnavailable(f"the platform has no room: {told}", status=503, retryable=True)
    if name in _FAILED:
        return PlatformFailed(f"the platform failed: {told}", status=500, retryable=True)
    return ConnectFailed(
        f"no stream to {address}: {told}",
        status=status,
        retryable=status is None or status >= 500,
    )


_REASONS = (
    ("AWS_IO_DNS", "the host is not known"),
    ("AWS_IO_SOCKET_CONNECTION_REFUSED", "nothing listens there"),
    ("AWS_IO_TLS", "TLS failed: is its authority trusted (ca_file, or SSL_CERT_FILE)?"),
)


def _unreachable(exc: BaseException, address: SageMakerAddress) -> ConnectFailed:
    said = f"{getattr(exc, 'name', '')} {_line(exc)}"
    reason = next((words for name, words in _REASONS if name in said), _line(exc))
    if isinstance(exc, botocore.exceptions.SSLError):
        reason = _REASONS[2][1]
    where = address.endpoint_url or "AWS"
    retryable = "TLS" not in reason
    return ConnectFailed(f"no way to {address} at {where}: {reason}", retryable=retryable)


def _line(said: object) -> str:
    text = " ".join(str(said).split())
    return text[:500] or type(said).__name__


async def _bounded(ask: Callable[[], Awaitable[T]], seconds: float) -> None:
    """Ask the SDK to end something; whether it does is none of our callers' business."""
    with contextlib.suppress(TimeoutError, OSError, SmithyError, AwsCrtError, RuntimeError):
        async with asyncio.timeout(seconds):
            await ask()
