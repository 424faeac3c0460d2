"""A session through SageMaker's bidirectional streaming, recorded as frames (`sagemaker.md#parts`).

One part is one frame, so that the transcript of a session has the same lines as one over WebSocket.
What SageMaker does not carry (pings, close codes, frames that no WebSocket allows) cannot be sent.
HTTP/2 is spoken by hand, since the suite has to stop reading, which the AWS SDK never does;
requests and events are signed by AWS's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from typing import Any, Final, Self

import botocore.session
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from aws_sdk_signers import AWSCredentialIdentity, SigV4SigningProperties
from aws_sdk_signers.signers import AsyncEventSigner
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from smithy_aws_event_stream.events import EventHeaderEncoder, EventMessage

from utterwire_conformance.claims import EndpointClaims
from utterwire_conformance.dialogue import Dialogue
from utterwire_conformance.router.event_stream import MEDIA_TYPE, Deframer, Message, NotEvents
from utterwire_conformance.router.signatures import EVENTS
from utterwire_conformance.transcript import Kind
from utterwire_conformance.via import NOTE, SageMakerTarget
from utterwire_conformance.wire import Frame, Opcode

from .connection import SEND_S, Address, ConnectFailed, open_stream, tls_context
from .recorder import Recorder
from .websocket import HandshakeRefused, NotCarried, WebSocketSession

__all__ = ["SageMakerSession"]

_PORT: Final = 8443
_SERVICE: Final = "sagemaker"
_READ: Final = 65_536
_SIP_BYTES_S: Final = 20_480
_SIP_EVERY_S: Final = 0.1
_LEAST_WINDOW: Final = 16_384
_WINDOW: Final = 65_535
# There is no pong to wait for: so long until what was on its way has come.
_SETTLED_S: Final = 0.3
_TYPES: Final = {Opcode.TEXT: "UTF8", Opcode.BINARY: "BINARY"}


class SageMakerSession(WebSocketSession):
    """One stream, on a connection of its own."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        recorder: Recorder,
        session: int,
        dialogue: Dialogue,
        *,
        window: int,
    ) -> None:
        super().__init__(*streams, recorder, session, dialogue)
        self.answers_pings = self.answers_close = False
        self._http = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        codes = h2.settings.SettingCodes
        self._http.local_settings = h2.settings.Settings(
            client=True, initial_values={codes.INITIAL_WINDOW_SIZE: window, codes.ENABLE_PUSH: 0}
        )
        self._stream = 1
        self._signer: AsyncEventSigner | None = None
        self._identity: AWSCredentialIdentity | None = None
        self._properties = SigV4SigningProperties(region="", service=_SERVICE)
        self._status: int | None = None
        self._head: dict[str, str] = {}
        self._body = bytearray()
        self._deframer = Deframer()
        self._over = False
        self._why_over = "end of stream"
        self._unacknowledged = 0
        self._sipped = 0.0
        self._continued = False
        self._sent_text = True
        self._writing = asyncio.Lock()
        self._window_opened = asyncio.Event()

    # --- opening and ending -------------------------------------------------------------------

    @classmethod
    async def reach(
        cls,
        target: SageMakerTarget,
        recorder: Recorder,
        claims: EndpointClaims,
        *,
        within: float,
        receive_buffer: int | None = None,
    ) -> Self:
        """Connect and open a stream.

        Raises:
            ConnectFailed: there is no connection, or there are no credentials.
            HandshakeRefused: the call was refused.
        """
        region, credentials = await asyncio.to_thread(_credentials, target)
        url = target.endpoint_url or f"https://runtime.sagemaker.{region}.amazonaws.com:{_PORT}"
        try:
            address = Address.of(url)
        except ValueError as error:
            raise ConnectFailed(f"endpoint_url {url}: {error}") from error
        session = recorder.next_session()
        dialogue = Dialogue(claims, recorder.transcript.scenario, session)
        context = tls_context(target.ca_file)
        context.set_alpn_protocols(["h2"])
        streams = await open_stream(
            address, context=context, within=within, receive_buffer=receive_buffer
        )
        window = _WINDOW if receive_buffer is None else max(_LEAST_WINDOW, receive_buffer)
        opened = cls(streams, recorder, session, dialogue, window=window)
        try:
            async with asyncio.timeout(within):
                await opened._call(target, address, region, credentials)
        except TimeoutError as error:
            streams[1].transport.abort()
            raise ConnectFailed(f"the call was not answered within {within:g} s") from error
        except (OSError, h2.exceptions.ProtocolError) as error:
            streams[1].transport.abort()
            raise ConnectFailed(f"the connection broke during the call: {error}") from error
        except BaseException:
            streams[1].transport.abort()
            raise
        opened.note(NOTE)
        if receive_buffer is not None:
            opened.note(f"receive buffer: {receive_buffer}")
        opened._task = asyncio.create_task(opened._read_on())
        return opened

    async def _call(
        self, target: SageMakerTarget, address: Address, region: str, credentials: Credentials
    ) -> None:
        tls: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != "h2":
            raise ConnectFailed(f"{address.authority} does not speak HTTP/2 (ALPN h2)")
        path = f"/endpoints/{target.name}/invocations-bidirectional-stream"
        own = {
            "Host": address.authority,
            "Content-Type": MEDIA_TYPE,
            "X-Amz-Content-SHA256": EVENTS,
        }
        if target.variant is not None:
            own["X-Amzn-SageMaker-Target-Variant"] = target.variant
        request = AWSRequest("POST", f"https://{address.authority}{path}", headers=own)
        SigV4Auth(credentials, _SERVICE, region).add_auth(request)
        signature = request.headers["Authorization"].rpartition("Signature=")[2]
        self._signer = AsyncEventSigner(
            initial_signature=signature.encode(), event_encoder_cls=EventHeaderEncoder
        )
        self._identity = AWSCredentialIdentity(
            access_key_id=credentials.access_key,
            secret_access_key=credentials.secret_key,
            session_token=credentials.token,
        )
        self._properties = SigV4SigningProperties(region=region, service=_SERVICE)
        fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", address.authority),
            (":path", path),
            *((n.lower(), str(v)) for n, v in request.headers.items() if n.lower() != "host"),
        ]
        shown = (("content-type", MEDIA_TYPE), ("authorization", "***"))
        self._record("out", "open", target=path, method="POST", headers=shown)
        self._http.initiate_connection()
        self._http.send_headers(self._stream, fields)
        await self._flush()
        while self._status is None or (self._status != 200 and not self._over):
            data = await self._reader.read(_READ)
            if not data:
                raise ConnectionResetError("the peer closed the connection during the call")
            self._take(data)
            await self._flush()
        self._record(
            "in", "open", status=self._status, headers=tuple(self._head.items()), target=path
        )
        if self._status != 200:
            kind = self._head.get("x-amzn-errortype", "")
            said = bytes(self._body).decode("utf-8", "replace")[:300]
            raise HandshakeRefused(self._status, f"HTTP {self._status} {kind} {said}".strip())

    async def say_goodbye(self, within: float = 2.0) -> None:
        """End the input (once), and wait for the end of the stream."""
        self.resume()
        if not self._close_sent:
            await self.send_close(1000)
        way = 2 * self.dialogue.rtt
        await self.until(lambda: self.dialogue.ended, within=within + way)

    # --- sending ------------------------------------------------------------------------------

    async def send_frame(self, frame: Frame, *, masked: bool = True) -> None:
        """Send a frame as a part; a close frame ends the input, and pings are not sent.

        Raises:
            NotCarried: no part says that.
        """
        if frame.rsv or not masked:
            raise NotCarried("SageMaker makes the frames: this one cannot be sent through it")
        if frame.opcode in (Opcode.PING, Opcode.PONG):
            return
        if frame.opcode == Opcode.CLOSE:
            await self._end_input()
            return
        headers = {":message-type": "event", ":event-type": "PayloadPart"}
        headers[":content-type"] = "application/octet-stream"
        if frame.opcode == Opcode.CONTINUATION:
            kind: Kind = "cont"
            text = self._sent_text
        elif frame.opcode in _TYPES:
            text = frame.opcode == Opcode.TEXT
            kind = "text" if text else "binary"
        else:
            raise NotCarried("SageMaker makes the frames: this one cannot be sent through it")
        self._sent_text = text
        # Binary frames by parts without a type, as clients send them that name none.
        if text:
            headers["DataType"] = "UTF8"
        if not frame.fin:
            headers["CompletionState"] = "PARTIAL"
        self._record("out", kind, fin=frame.fin, data=frame.payload)
        async with self._writing:
            await self._send_event(EventMessage(headers=headers, payload=frame.payload))

    async def send_raw(self, octets: bytes) -> None:
        """Cannot be done.

        Raises:
            NotCarried: always.
        """
        raise NotCarried("SageMaker makes the frames: octets cannot be sent through it")

    async def send_close(self, code: int | None = 1000, reason: str = "") -> None:
        """End the input: that is all the closing that a caller has."""
        await self._end_input()

    async def close_with(self, payload: bytes) -> None:
        """End the input, too: no part says what a close frame would."""
        await self._end_input()

    async def until_pongs(self, count: int, within: float) -> bool:
        """No pong will come: wait for so long that what was on its way has."""
        await self.until(lambda: False, within=min(within, _SETTLED_S + 4 * self.dialogue.rtt))
        return False

    async def until_close(self, within: float) -> bool:
        """Wait for the end of the stream."""
        return await self.until(lambda: self.dialogue.ended, within=within)

    async def _end_input(self) -> None:
        if self._close_sent:
            return
        self._close_sent = True
        self._record("out", "close", reason="the input was ended")
        async with self._writing:
            with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
                assert self._signer is not None
                last = await self._signer.sign_empty(
                    event=EventMessage(), identity=self._identity, properties=self._properties
                )
                await self._send_data(last.encode(), end=True)

    async def _send_event(self, event: EventMessage) -> None:
        if self._close_sent:
            return
        assert self._signer is not None
        signed = await self._signer.sign(
            event=event, identity=self._identity, properties=self._properties
        )
        await self._send_data(signed.encode(), end=False)

    async def _send_data(self, octets: bytes, *, end: bool) -> None:
        rest = memoryview(octets)
        # A peer that takes nothing must not keep the suite from reading.
        with contextlib.suppress(TimeoutError, h2.exceptions.ProtocolError, KeyError):
            async with asyncio.timeout(SEND_S):
                while rest and not self._over:
                    window = self._http.local_flow_control_window(self._stream)
                    size = min(window, self._http.max_outbound_frame_size, len(rest))
                    if size <= 0:
                        self._window_opened.clear()
                        await self._window_opened.wait()
                        continue
                    self._http.send_data(self._stream, bytes(rest[:size]))
                    rest = rest[size:]
                    await self._flush()
                if end and not self._over:
                    self._http.end_stream(self._stream)
                await self._flush()

    async def _flush(self) -> None:
        data = self._http.data_to_send()
        if data:
            await self._write(data)

    # --- reading ------------------------------------------------------------------------------

    # To stop reading is to open the window no further: what else comes on the connection, such as
    # the window for what is sent, is read on.

    def resume(self) -> None:
        """Read again, as fast as it comes."""
        super().resume()
        self._catch_up()

    def sip(self) -> None:
        """Read on, but slower than speech is heard."""
        super().sip()
        self._catch_up()

    def _catch_up(self) -> None:
        """Record what has come, and let more come."""
        if self._task is None or not self._resumed.is_set():
            return
        self._read_parts()
        due = self._unacknowledged
        if self._sips:
            since, self._sipped = self.now - self._sipped, self.now
            due = min(due, max(1, int(_SIP_BYTES_S * min(since, _SIP_EVERY_S))))
        if not due or self._over:
            return
        self._unacknowledged -= due
        with contextlib.suppress(h2.exceptions.ProtocolError, KeyError):
            self._http.increment_flow_control_window(due, self._stream)
        data = self._http.data_to_send()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def _read_on(self) -> None:
        reason: str | None = None
        try:
            self._catch_up()
            while not self._over:
                data = await self._read_some()
                if data is None:
                    self._catch_up()
                    continue
                if not data:
                    reason = "the connection ended"
                    break
                self._received += len(data)
                reason = self._too_much()
                if reason is not None:
                    break
                self._take(data)
                self._catch_up()
                await self._flush()
            # What the endpoint ended while the suite was not reading comes to light when it does.
            await self._resumed.wait()
            self._read_parts()
        except OSError as error:
            reason = f"the connection broke: {error.strerror or error}"
        except h2.exceptions.ProtocolError as error:
            reason = f"what came was no HTTP/2: {error}"
        if self._continued or self._deframer.inside_a_message:
            self.note("ended in a frame: yes")
        self._record("in", "eof", reason=reason or self._why_over)
        self._notify()

    async def _read_some(self) -> bytes | None:
        """What comes; None where it is time for another sip."""
        if not self._sips:
            return await self._reader.read(_READ)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SIP_EVERY_S):
                return await self._reader.read(_READ)
        return None

    def _take(self, data: bytes) -> None:
        for event in self._http.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    fields = {n.decode("latin-1"): v.decode("latin-1") for n, v in event.headers}
                    self._status = int(fields.pop(":status"))
                    self._head = fields
                case h2.events.DataReceived():
                    self._body += event.data
                    size = event.flow_controlled_length
                    self._unacknowledged += size
                    # Not where the peer has said in the same breath that it goes.
                    with contextlib.suppress(h2.exceptions.ProtocolError):
                        if size:
                            self._http.increment_flow_control_window(size)
                case h2.events.StreamEnded():
                    self._end("end of stream")
                case h2.events.StreamReset():
                    self._end(f"the stream was reset (code {event.error_code})")
                case h2.events.ConnectionTerminated():
                    # h2 takes nothing more on a connection that is to go, streams included.
                    self._end("the connection is to go (GOAWAY)")
                case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                    self._window_opened.set()
                case _:
                    pass

    def _end(self, why: str) -> None:
        if not self._over:
            self._over, self._why_over = True, why
        self._window_opened.set()

    def _read_parts(self) -> None:
        """Record the parts that are whole."""
        octets = bytes(self._body)
        self._body.clear()
        try:
            for message in self._deframer.feed(octets):
                self._part(message)
        except NotEvents as error:
            self._over, self._why_over = True, f"what came was no event stream: {error}"
            self._window_opened.set()

    def _part(self, message: Message) -> None:
        headers = message.headers
        self._frames += 1
        if headers.get(":message-type") != "event":
            self._failed(message)
        elif headers.get(":event-type") == "PayloadPart":
            fin = headers.get("CompletionState") != "PARTIAL"
            kind: Kind = "text" if headers.get("DataType") == "UTF8" else "binary"
            # A part that goes on carries the type of the one that began.
            self._record("in", "cont" if self._continued else kind, fin=fin, data=message.payload)
            self._continued = not fin
            self._last_activity = self.now
        self._notify()

    def _failed(self, message: Message) -> None:
        name = message.text(":exception-type") or message.text(":error-code")
        said = message.payload.decode("utf-8", "replace")
        said = said or message.text(":error-message") or ""
        if name == "ModelStreamError":
            self._record("in", "close", code=_close_code(said), reason=said[:500])
        self.note(f"stream error: {name}: {said[:500]}")


def _close_code(body: str) -> int | None:
    """The close code of the container, as a `ModelStreamError` has it."""
    try:
        told = str(json.loads(body)["ErrorCode"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return int(told) if re.fullmatch(r"[0-9]{4}", told) else None


def _credentials(target: SageMakerTarget) -> tuple[str, Credentials]:
    """The region, and the keys to sign with.

    Raises:
        ConnectFailed: there are none.
    """
    if target.keys is not None:
        return target.region or "us-east-1", Credentials(*target.keys)
    try:
        session = botocore.session.Session(profile=target.profile)
        found: Any = session.get_credentials()
        region = target.region or session.get_config_variable("region")
        # Some (of a sign-in, of a role) are fetched only now.
        frozen = None if found is None else found.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise ConnectFailed(f"AWS: {error}") from error
    if frozen is None:
        raise ConnectFailed("AWS: there are no credentials: run `aws configure`, or name a profile")
    if not region:
        raise ConnectFailed("AWS: no region: give `region`, or set AWS_DEFAULT_REGION")
    return str(region), Credentials(frozen.access_key, frozen.secret_key, frozen.token)
