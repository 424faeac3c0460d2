"""``utterwire-deploy agent``: an agent on AgentCore that speaks by an endpoint."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from utterwire_server.deploy.arguments import Commands, add_command, seconds
from utterwire_server.deploy.failure import DeployFailed

if TYPE_CHECKING:
    from utterwire_server.deploy.account import Account
    from utterwire_server.deploy.agent import WantedAgent
    from utterwire_server.deploy.deployment import AgentDeployment
    from utterwire_server.deploy.watch import Watch

__all__ = ["IMAGE", "add_agent", "run_agent"]

#: Name of the image that DEPLOY.md builds.
IMAGE: Final = "utterwire-agent"
_PCM: Final = "pcm_s16le"


def add_agent(commands: Commands) -> None:
    """Add ``agent`` and its commands."""
    text = "an agent on AgentCore that speaks by an endpoint"
    agent = commands.add_parser("agent", help=text, description=text, allow_abbrev=False)
    command = partial(
        add_command,
        agent.add_subparsers(dest="action", required=True, metavar="COMMAND"),
        of="the agent",
    )
    up = command("up", "make or update an agent, and wait until it answers")
    up.set_defaults(command="agent up")
    up.add_argument(
        "--endpoint", metavar="NAME", default="", help="endpoint of SageMaker AI that speaks"
    )
    up.add_argument(
        "--url", metavar="ADDRESS", default="", help="or the address of one elsewhere, wss://HOST"
    )
    up.add_argument("--voice", default="", help="voice (default: the endpoint's)")
    up.add_argument(
        "--model",
        metavar="ID",
        default="",
        help="model or inference profile of Amazon Bedrock (default: the scripted model)",
    )
    up.add_argument(
        "--image", default=IMAGE, help="image of this machine to push (default %(default)s)"
    )
    up.add_argument("--image-uri", metavar="URI", help="an image that is in ECR already, instead")
    up.add_argument(
        "--idle-timeout",
        metavar="SECONDS",
        type=seconds(28_800),
        default=300,
        help="seconds after its last call until a session is ended, 60 to 28800 (default 300)",
    )
    status = command("status", "show what there is, and whether it answers", dry=False)
    status.set_defaults(command="agent status")
    status.add_argument("--json", action="store_true", help="as JSON on stdout")
    invoke = command("invoke", "ask the agent: its text to stdout, its speech to a file", dry=False)
    invoke.set_defaults(command="agent invoke")
    invoke.add_argument("prompt", metavar="PROMPT", help="what to ask")
    invoke.add_argument(
        "--mode",
        choices=("bidi", "batch"),
        default="bidi",
        help="spoken while it is written, or when it is (default bidi)",
    )
    invoke.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        default="answer.wav",
        help="file for the audio (default answer.wav); - is stdout, and the text goes to stderr",
    )
    down = command("down", "remove an agent, its images and log; the endpoint stays")
    down.set_defaults(command="agent down")


def run_agent(values: argparse.Namespace) -> int:
    """Run one of the commands; the exit status.

    :raises DeployFailed: if it cannot be done.
    """
    from utterwire_server.deploy.account import open_account
    from utterwire_server.deploy.agent import PROGRAM, down, shown, status, up
    from utterwire_server.deploy.deployment import AgentDeployment
    from utterwire_server.deploy.watch import Watch

    agent = AgentDeployment(values.name)
    if values.action == "up":
        wanted = _wanted(values)
    if getattr(values, "dry_run", False):
        print("\n".join(shown(agent, wanted) if values.action == "up" else _removal(agent)))
        return 0
    account, watch = open_account(values.region, values.profile), Watch()
    match values.action:
        case "up":
            made = up(account, watch, agent, wanted)
            print(f"agent {agent.name}, version {made.version}, answers in {account.region}")
            print(f'Ask: {PROGRAM} invoke {agent.name} "How is the weather?"')
        case "status":
            answers, lines = status(account, watch, agent)
            told = {"name": agent.name, "ready": answers, "lines": lines}
            print(json.dumps(told, indent=2) if values.json else "\n".join(lines))
            return 0 if answers else 1
        case "invoke":
            return _invoke(values, account, watch, agent)
        case "down":
            there = down(account, watch, agent)
            print(f"agent {agent.name} {'is removed' if there else 'was not there'}")
    return 0


def _wanted(values: argparse.Namespace) -> WantedAgent:
    from utterwire_server.deploy.agent import WantedAgent

    return WantedAgent(
        image=values.image,
        image_uri=values.image_uri,
        endpoint=values.endpoint,
        url=values.url,
        voice=values.voice,
        model=values.model,
        idle_timeout_s=values.idle_timeout,
    )


def _removal(agent: AgentDeployment) -> list[str]:
    return [
        f"1. stack {agent.stack}: remove",
        f"2. stack {agent.images}: remove, with its images",
        f"3. log groups {agent.log_prefix}...: remove",
    ]


def _invoke(
    values: argparse.Namespace, account: Account, watch: Watch, agent: AgentDeployment
) -> int:
    from utterwire_server.deploy.agent import PROGRAM, agent_stack
    from utterwire_server.deploy.invocation import write_audio
    from utterwire_server.deploy.question import ask

    arn = agent_stack(account, watch, agent).outputs().get("RuntimeArn")
    if arn is None:
        raise DeployFailed(
            f"there is no agent {agent.name} in {account.region}",
            f"{PROGRAM} up {agent.name}, or another --region or --profile",
        )
    to_stdout = values.output == "-"
    text_out = sys.stderr if to_stdout else sys.stdout

    def write(text: str) -> None:
        print(text, end="", file=text_out, flush=True)

    answer = ask(account, agent, arn, values.prompt, write, mode=values.mode)
    if answer.first_text_s is not None:
        print(file=text_out)
    if answer.audio:
        write_audio(
            bytes(answer.audio),
            sys.stdout.buffer if to_stdout else Path(values.output),
            None if answer.format == _PCM else answer.format,
            answer.sample_rate,
        )
    if answer.unheard or answer.first_audio_s is None:
        raise DeployFailed(
            f"agent {agent.name} was not heard whole: {answer.unheard or 'it sent no audio'}",
            f"{PROGRAM} status {agent.name} names its endpoint, its model and its log",
        )
    first_text = answer.first_text_s or 0.0
    print(
        f"{'stdout' if to_stdout else values.output}: {len(answer.audio)} bytes"
        f" ({answer.format}, {answer.sample_rate} Hz), first text after {first_text:.2f} s,"
        f" first audio after {answer.first_audio_s:.2f} s, all after {answer.took_s:.2f} s",
        file=sys.stderr,
    )
    return 0
