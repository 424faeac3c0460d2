"""``utterwire-deploy``: an endpoint on SageMaker AI in one command, a line for each failure."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from utterwire_server.deploy.agent_cli import add_agent, run_agent
from utterwire_server.deploy.arguments import add_command, count, seconds
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.parser import Parser

if TYPE_CHECKING:
    from utterwire_server.deploy.commands import Wanted
    from utterwire_server.deploy.deployment import Deployment
    from utterwire_server.deploy.scaling import Scaling

__all__ = ["main"]

_PROGRAM: Final = "utterwire-deploy"
_NEEDED: Final = ("boto3", "botocore", "numpy")
_INTERRUPTED: Final = 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="A speaking endpoint on SageMaker AI, and an agent that speaks by it: made,"
        " watched, scaled and removed.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = partial(add_command, commands)
    _up_flags(command("up", "make or update a deployment, and wait until it serves"))
    status = command("status", "show what there is, and whether it serves", dry=False)
    status.add_argument("--json", action="store_true", help="as JSON on stdout")
    invoke = command("invoke", "have the endpoint speak a text", dry=False)
    invoke.add_argument("text", metavar="TEXT", help="what to speak")
    invoke.add_argument("--voice", help="voice (default: the endpoint's)")
    invoke.add_argument("--format", help="audio format (default: PCM, in .wav files with a header)")
    invoke.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        default="speech.wav",
        help="file for the audio (default speech.wav); - is stdout",
    )
    _scale_flags(command("scale", "scale an endpoint by how many listen at once"))
    _plan_flags(
        command("plan", "compute scaling from `utterwire-server bench`", dry=False, aws=False)
    )
    down = command("down", "remove a deployment and all that it kept")
    down.add_argument(
        "--keep-foundation",
        action="store_true",
        help="leave role, images, model files and log, for another `up`",
    )
    add_agent(commands)
    return parser


def _up_flags(up: Parser) -> None:
    up.add_argument(
        "--image",
        help="image of this machine to push (default utterwire-server:cuda, on instances without"
        " a GPU utterwire-server:cpu)",
    )
    up.add_argument("--image-uri", metavar="URI", help="an image that is in ECR already, instead")
    up.add_argument(
        "--model-dir",
        metavar="DIR",
        type=Path,
        help="model folder to send to S3 (default: the model in the image)",
    )
    up.add_argument("--instance-type", default="ml.g5.xlarge", help="(default %(default)s)")
    up.add_argument("--instances", type=count, default=1, help="how many (default 1)")
    up.add_argument(
        "--ami",
        help="InferenceAmiVersion of the host (default: on a GPU the one that streaming needs)",
    )
    up.add_argument(
        "--engine",
        choices=("kokoro-onnx", "kokoro-torch", "tone"),
        default="",
        help="engine of the server (default: the image's)",
    )
    for name, text in (
        ("startup", "the server may take to be ready"),
        ("download", "the model's files may take to come"),
    ):
        up.add_argument(
            f"--{name}-timeout",
            metavar="SECONDS",
            type=seconds(3_600),
            default=600,
            help=f"seconds that {text}, 60 to 3600 (default 600)",
        )


def _scale_flags(scale: Parser) -> None:
    scale.add_argument("--plan", metavar="FILE", type=Path, help="what `plan --json` wrote")
    scale.add_argument("--min", type=count, help="instances at least (default 1)")
    scale.add_argument("--max", type=count, help="instances at most")
    scale.add_argument("--target", type=count, help="listeners at once for each instance")
    scale.add_argument(
        "--off", action="store_true", help="take scaling off; the instances stay as they are"
    )


def _plan_flags(plan: Parser) -> None:
    plan.add_argument("name", metavar="NAME", nargs="?", default="NAME", help="of the endpoint")
    plan.add_argument(
        "--from",
        dest="bench",
        metavar="FILE",
        type=Path,
        required=True,
        help="what `utterwire-server bench --json FILE` wrote on such a machine",
    )
    plan.add_argument("--peak", type=count, help="listeners at once, at most")
    plan.add_argument("--min", type=count, default=1, help="instances at least (default 1)")
    plan.add_argument("--max", type=count, help="instances at most (default: as the peak needs)")
    plan.add_argument(
        "--goal-first-byte", type=float, metavar="SECONDS", help="(default: the one of the bench)"
    )
    plan.add_argument(
        "--growth", type=float, metavar="LISTENERS", help="more listeners within a minute, at worst"
    )
    plan.add_argument(
        "--spare", type=float, default=0.25, help="share that is kept free (default 0.25)"
    )
    plan.add_argument(
        "--start",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="until a new instance runs its container (default 300, not measured)",
    )
    plan.add_argument("--json", metavar="FILE", help="file for the result; - is stdout")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns the exit status: 0 if it was done, 1 if it could not be (or the endpoint of ``status``
    does not serve), 2 for a mistake in the arguments, 130 after Ctrl-C.
    """
    try:
        values = _parser().parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    try:
        from botocore.exceptions import BotoCoreError, ClientError

        from utterwire_server.deploy.aws_error import explained
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(
            f"{_PROGRAM}: {missing} is not installed; pip install 'utterwire[deploy]'",
            file=sys.stderr,
        )
        return 2
    try:
        return _run(values)
    except DeployFailed as error:
        return _complain(values, error)
    except (ClientError, BotoCoreError) as error:
        return _complain(values, explained(error))
    except KeyboardInterrupt:
        program = f"{_PROGRAM} agent" if values.command.startswith("agent ") else _PROGRAM
        stopped = DeployFailed(
            "stopped; what AWS has begun goes on",
            f"{program} status {values.name} shows how far it is; the same command goes on",
            status=_INTERRUPTED,
        )
        return _complain(values, stopped)


def _complain(values: argparse.Namespace, error: DeployFailed) -> int:
    print(f"{_PROGRAM} {values.command}: {error.problem}", file=sys.stderr)
    for line in error.details:
        print(line, file=sys.stderr)
    print(f"next: {error.next_step}", file=sys.stderr)
    return error.status


def _run(values: argparse.Namespace) -> int:
    if values.command == "plan":
        return _plan(values)
    if values.command.startswith("agent "):
        return run_agent(values)
    from utterwire_server.deploy.account import open_account
    from utterwire_server.deploy.commands import down, scale, status, unscale, up
    from utterwire_server.deploy.deployment import Deployment
    from utterwire_server.deploy.watch import Watch

    deployment = Deployment(values.name)
    if values.command == "up":
        wanted = _wanted(values)
    elif values.command == "scale":
        scaling = _scaling(values)
    if getattr(values, "dry_run", False):
        return _dry(values, deployment)
    account, watch = open_account(values.region, values.profile), Watch()
    match values.command:
        case "up":
            up(account, watch, deployment, wanted)
            print(f"endpoint {deployment.name} serves in {account.region}")
            print(f'Speak: {_PROGRAM} invoke {deployment.name} "Hello."')
        case "status":
            serves, lines = status(account, watch, deployment)
            told = {"name": deployment.name, "in_service": serves, "lines": lines}
            print(json.dumps(told, indent=2) if values.json else "\n".join(lines))
            return 0 if serves else 1
        case "invoke":
            return _invoke(values, deployment)
        case "scale" if scaling is None:
            there = unscale(account, watch, deployment)
            print(f"scaling of {deployment.name} {'is off' if there else 'was off already'}")
        case "scale":
            assert scaling is not None
            changed = scale(account, watch, deployment, scaling)
            words = "is scaled" if changed else "is scaled so already"
            print(
                f"endpoint {deployment.name} {words}: {scaling.min_instances} to"
                f" {scaling.max_instances} instances, {scaling.target_requests} at once each"
            )
        case "down":
            there = down(account, watch, deployment, keep=values.keep_foundation)
            print(f"deployment {deployment.name} {'is removed' if there else 'was not there'}")
    return 0


def _wanted(values: argparse.Namespace) -> Wanted:
    from utterwire_server.deploy.commands import Wanted
    from utterwire_server.deploy.deployment import ami_for, has_gpu

    gpu = has_gpu(values.instance_type)
    return Wanted(
        image=values.image or f"utterwire-server:{'cuda' if gpu else 'cpu'}",
        image_uri=values.image_uri,
        model_dir=values.model_dir,
        instance_type=values.instance_type,
        instances=values.instances,
        ami=ami_for(values.instance_type) if values.ami is None else values.ami,
        engine=values.engine,
        startup_timeout_s=values.startup_timeout,
        download_timeout_s=values.download_timeout,
    )


def _scaling(values: argparse.Namespace) -> Scaling | None:
    """What ``scale`` was given; None for none at all."""
    from utterwire_server.deploy.scaling import Scaling, quiet, read_scaling

    by_hand = any(value is not None for value in (values.min, values.max, values.target))
    if values.off + (values.plan is not None) + by_hand != 1:
        raise DeployFailed(
            "how to scale has to be said in one way",
            "give --plan FILE, or --target and --max (and --min), or --off",
            status=2,
        )
    if values.off:
        return None
    if values.plan is not None:
        return read_scaling(values.plan)
    if values.target is None or values.max is None:
        raise DeployFailed(
            "--target and --max go together", "give both, or a --plan FILE", status=2
        )
    least = values.min or 1
    return Scaling(
        min_instances=least,
        max_instances=values.max,
        target_requests=values.target,
        scale_in_requests=quiet(values.target, least),
    )


def _dry(values: argparse.Namespace, deployment: Deployment) -> int:
    from utterwire_server.deploy.commands import described, shown
    from utterwire_server.deploy.template import SCALING

    if values.command == "up":
        lines = list(shown(deployment, _wanted(values)))
    elif values.command == "scale":
        scaling = _scaling(values)
        lines = (
            [f"1. stack {deployment.scaling}: remove"]
            if scaling is None
            else [
                f"1. stack {deployment.scaling}: create or update",
                *described(SCALING.body, deployment.scaling, scaling.parameters(deployment)),
            ]
        )
    else:
        stacks = [deployment.scaling, deployment.endpoint]
        steps = [f"stack {name}: remove" for name in stacks]
        if not values.keep_foundation:
            steps += [
                "bucket of the model: remove every object",
                f"stack {deployment.foundation}: remove, with its images",
                f"log group {deployment.log_group}: remove",
            ]
        lines = [f"{place}. {step}" for place, step in enumerate(steps, 1)]
    print("\n".join(lines))
    return 0


def _invoke(values: argparse.Namespace, deployment: Deployment) -> int:
    from utterwire_server.deploy.account import open_account
    from utterwire_server.deploy.invocation import invoke, write_audio

    to_stdout = values.output == "-"
    audio = bytearray()
    spoken = invoke(
        open_account(values.region, values.profile),
        deployment.name,
        values.text,
        audio.extend,
        voice=values.voice,
        format=values.format,
    )
    write_audio(
        bytes(audio), sys.stdout.buffer if to_stdout else Path(values.output), values.format
    )
    print(
        f"{'stdout' if to_stdout else values.output}: {spoken.audio_bytes} bytes"
        f" ({spoken.content_type}), first byte after {spoken.first_byte_s:.2f} s,"
        f" all after {spoken.took_s:.2f} s",
        file=sys.stderr,
    )
    return 0


def _plan(values: argparse.Namespace) -> int:
    from utterwire_server.deploy.capacity import Goals, plan, read_bench

    bench = read_bench(values.bench)
    goals = Goals(
        peak=values.peak,
        least=values.min,
        most=values.max,
        first_byte_s=values.goal_first_byte,
        growth=values.growth,
        spare=values.spare,
        start_s=values.start,
    )
    scaling, how = plan(bench, goals)
    if values.json == "-":
        print(scaling.as_json(how), end="")
        return 0
    for line in how:
        print(f"- {line}")
    print(
        f"\n{scaling.min_instances} to {scaling.max_instances} instances,"
        f" {scaling.target_requests} listeners at once each"
    )
    file = values.json or "scaling.json"
    if values.json is not None:
        try:
            Path(file).write_text(scaling.as_json(how), encoding="utf-8")
        except OSError as error:
            raise DeployFailed(
                f"{file}: {error.strerror or error}", "give another file with --json"
            ) from None
    else:
        print(f"Keep it: --json {file}")
    print(f"Use it: {_PROGRAM} scale {values.name} --plan {file}")
    return 0
