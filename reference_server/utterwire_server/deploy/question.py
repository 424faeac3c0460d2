"""One question to an agent, and its answer as text and as speech (``examples/agentcore``)."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from urllib3.exceptions import HTTPError as TransportError

from utterwire_server.deploy.account import Account
from utterwire_server.deploy.agent import PROGRAM
from utterwire_server.deploy.aws_error import code_of, message_of
from utterwire_server.deploy.deployment import AgentDeployment
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.log import log_groups, log_lines
from utterwire_server.deploy.runtime import QUALIFIER

__all__ = ["Answer", "ask"]

_EVENTS: Final = "text/event-stream"
_DATA: Final = b"data:"


@dataclass(slots=True)
class Answer:
    """What came back.

    :param format: of the audio, as the endpoint names it; empty if there was none.
    :param first_text_s: seconds until the first text; None if there was none. Likewise for audio.
    :param unheard: why something of it is not heard; empty if nothing went wrong.
    """

    audio: bytearray
    format: str = ""
    sample_rate: int = 24_000
    first_text_s: float | None = None
    first_audio_s: float | None = None
    took_s: float = 0.0
    unheard: str = ""


def ask(
    account: Account,
    agent: AgentDeployment,
    runtime_arn: str,
    prompt: str,
    write: Callable[[str], object],
    *,
    mode: str = "bidi",
    now: Callable[[], float] = time.monotonic,
) -> Answer:
    """Ask an agent, in a session of its own, which is ended at once.

    :param write: is given the text, piece by piece.
    :raises DeployFailed: if the agent refuses, fails or breaks off.
    """
    client = account.client("bedrock-agentcore")
    session = {
        "agentRuntimeArn": runtime_arn,
        "qualifier": QUALIFIER,
        # AgentCore wants 33 characters at least.
        "runtimeSessionId": f"utterwire-{uuid.uuid4().hex}",
    }
    answer = Answer(bytearray())
    began = now()
    try:
        told = client.invoke_agent_runtime(
            **session,
            contentType="application/json",
            accept=_EVENTS,
            payload=json.dumps({"prompt": prompt, "mode": mode}).encode(),
        )
        with closing(told["response"]) as body:
            if not told["contentType"].startswith(_EVENTS):
                raise _strange(agent, body.read(200).decode("utf-8", "replace"))
            for event in _events(agent, body):
                _take(agent, answer, event, write, now() - began)
                if event["type"] == "agent_end":
                    answer.took_s = now() - began
                    return answer
    except ClientError as error:
        raise _refused(account, agent, error) or error from None
    except (HTTPClientError, TransportError) as error:
        raise _broken(agent, str(error)) from None
    finally:
        # Else it is charged for until its idle time is over, as it is if this fails.
        with contextlib.suppress(ClientError, BotoCoreError, TransportError):
            client.stop_runtime_session(**session)
    raise _broken(agent, answer.unheard or "the stream ended before the answer did")


def _events(agent: AgentDeployment, body: Any) -> Iterator[dict[str, Any]]:
    """Events of a stream, each of one line of data, as AgentCore's library writes them."""
    for line in body.iter_lines():
        if not line.startswith(_DATA):
            continue
        try:
            event = json.loads(line.removeprefix(_DATA))
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise _strange(agent, line.decode("utf-8", "replace"))
        yield event


def _take(
    agent: AgentDeployment,
    answer: Answer,
    event: dict[str, Any],
    write: Callable[[str], object],
    at_s: float,
) -> None:
    try:
        match event["type"]:
            case "text_delta":
                if answer.first_text_s is None:
                    answer.first_text_s = at_s
                write(event["text"])
            case "audio_stream_start":
                answer.format, answer.sample_rate = event["format"], event["sample_rate"]
            case "audio_chunk":
                if answer.first_audio_s is None:
                    answer.first_audio_s = at_s
                answer.audio += base64.b64decode(event["data"], validate=True)
            case "error":
                answer.unheard = f"{event['message']} ({event['code']})"
    except (KeyError, TypeError, ValueError):
        raise _strange(agent, json.dumps(event)) from None


def _strange(agent: AgentDeployment, told: str) -> DeployFailed:
    return DeployFailed(
        f"agent {agent.name} answers otherwise than the one of examples/agentcore: {told[:200]}",
        f"build its image from examples/agentcore/Dockerfile, then {PROGRAM} up {agent.name}",
    )


def _broken(agent: AgentDeployment, why: str) -> DeployFailed:
    return DeployFailed(
        f"agent {agent.name} broke off: {why}",
        f"try again; {PROGRAM} status {agent.name} shows how it is",
    )


def _refused(account: Account, agent: AgentDeployment, error: ClientError) -> DeployFailed | None:
    """What AgentCore, or the agent behind it, said; None if it is nothing of theirs."""
    code, words = code_of(error), message_of(error)
    if code == "ResourceNotFoundException":
        return DeployFailed(
            f"agent {agent.name} is gone, although its stack is there: {words}",
            f"{PROGRAM} down {agent.name}, then up again",
        )
    if code == "RuntimeClientError":
        return DeployFailed(
            f"the container of agent {agent.name} failed: {words}",
            f"read its log; after a correction of the image, run {PROGRAM} up {agent.name} again",
            details=_log(account, agent),
        )
    return None


def _log(account: Account, agent: AgentDeployment) -> tuple[str, ...]:
    """The end of the agent's log, or why there is none. Never a failure of its own."""
    try:
        groups = log_groups(account, agent.log_prefix)
    except ClientError as error:
        return (f"log groups cannot be listed: {message_of(error)}",)
    ours = [group for group in groups if group.endswith(f"-{QUALIFIER}")]
    if not ours:
        return (f"no log group {agent.log_prefix}...: the container never started",)
    return log_lines(account, ours[-1])
