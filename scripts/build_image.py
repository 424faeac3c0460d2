"""Build the server's image (CPU) where there is no container engine, and run it as SageMaker would.

    python scripts/build_image.py --model-dir /path/to/model
    python scripts/build_image.py --model-dir /path/to/model --out -

Needs root on Debian, the packages buildah and debootstrap, a Python 3.12 (``--python``) and, to
judge the container, what ``utterwire[client,conformance]`` installs. What it does:

1. A base: Debian by debootstrap, with that Python copied to ``/usr/local``.
2. ``buildah bud`` of ``reference_server/Dockerfile`` on that base, by chroot, into a store of its
   own. pip installs through the index and the certificates that are set up here.
3. The container, by ``buildah mount`` and chroot: process 1 of a process namespace, ``serve``, the
   environment of the image and none else, the model folder read-only at ``/opt/ml/model``.
4. The suite's profile ``sagemaker`` is pointed at it.
5. It is told SIGTERM in mid-speech, with a text that waits: all that was accepted must come whole,
   and the process end with status 0 within 30 s.

``--run`` is how the suite launches the container; it is no use by hand.

Exits 0 if all of that holds, 1 if not, 2 if it could not be tried.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provenance import ROOT, record, write

__all__ = ["Store", "drained", "main"]

BASE: Final = "localhost/utterwire-base:3.12"
IMAGE: Final = "localhost/utterwire-server:cpu"
SUITE: Final = "bookworm"
#: What Python's own modules are linked against.
LIBRARIES: Final = (
    *("ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libreadline8"),
    *("libsqlite3-0", "libssl3", "libuuid1", "zlib1g"),
)
SIGKILL_S: Final = 30.0
#: What SageMaker AI gives a container until `/ping` must have answered.
START_S: Final = 480.0
PROFILES: Final = (
    *("core", "formats", "http", "interrupt", "load", "negotiate", "sagemaker", "sse", "timing"),
)
SPOKEN: Final = (
    "The boats came home before the rain, and nobody on the pier had thought of waiting.",
    "Two of them had been gone for a week.",
)


class NotTried(Exception):
    """Something that is needed is not here; one line for a person."""


@dataclass(frozen=True, slots=True)
class Store:
    """buildah, with a store of its own.

    :param folder: where its images are.
    """

    folder: Path

    def buildah(self, *words: str, quiet: bool = True) -> str:
        """What a command of buildah prints on stdout.

        :raises NotTried: if it fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "storage.conf"
        settings.write_text(
            f'[storage]\ndriver = "vfs"\nrunroot = "{self.folder}/run"\n'
            f'graphroot = "{self.folder}/images"\n',
            encoding="utf-8",
        )
        environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(settings),
            "BUILDAH_ISOLATION": "chroot",
        }
        done = subprocess.run(
            ["buildah", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = (done.stderr or "see above").strip().splitlines()[-1]
            raise NotTried(f"buildah {words[0]} failed: {last}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        """Whether an image is there."""
        return bool(self.buildah("images", "--quiet", "--filter", f"reference={image}"))

    @contextlib.contextmanager
    def mounted(self, image: str) -> Iterator[tuple[Path, str]]:
        """The root of a new container of an image, and the container's name; removed in the end."""
        container = self.buildah("from", "--pull-never", image)
        try:
            yield Path(self.buildah("mount", container)), container
        finally:
            self.buildah("rm", container)


def mirror() -> str:
    """Where apt has Debian itself from."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(SUITE)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for line in told.splitlines():
        uri, _, suite = line.partition(" ")
        if suite in (SUITE, "stable", "oldstable"):
            return uri
    raise NotTried(f"apt knows no source of {SUITE}; run apt-get update on a Debian")


def find_python(named: str | None) -> Path:
    """The folder of a Python 3.12 that can be copied: its prefix."""
    candidates = [named] if named else [f"{path}/bin/python3.12" for path in _pyenv()]
    candidates += [] if named else ["python3.12"]
    for candidate in candidates:
        told = shutil.which(candidate)
        if told is None:
            continue
        code = "import sys; print(sys.base_prefix, sys.version_info[:2] == (3, 12))"
        done = subprocess.run([told, "-c", code], capture_output=True, text=True, check=False)
        prefix, _, fits = done.stdout.strip().rpartition(" ")
        if done.returncode == 0 and fits == "True" and prefix != "/usr":
            return Path(prefix)
    raise NotTried("no Python 3.12 outside of /usr was found; name one with --python")


def _pyenv() -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted((root / "versions").glob("3.12.*"), reverse=True)


def make_base(store: Store, python: Path) -> None:
    """Debian and Python 3.12 under ``/usr/local``, as an image of the store."""
    container = store.buildah("from", "scratch")
    try:
        root = Path(store.buildah("mount", container))
        say(f"debootstrap {SUITE}")
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(LIBRARIES)}"]
        done = subprocess.run(
            [*command, SUITE, str(root), mirror()], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NotTried(f"debootstrap failed: {done.stdout.strip().splitlines()[-1]}")
        for cache in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / cache, ignore_errors=True)
        say(f"Python of {python}")
        copy_python(python, root / "usr" / "local")
        subprocess.run(["chroot", str(root), "/sbin/ldconfig"], check=True)
        store.buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        store.buildah("config", "--env", "LANG=C.UTF-8", container)
        store.buildah("commit", container, BASE)
    finally:
        store.buildah("rm", container)


def copy_python(prefix: Path, to: Path) -> None:
    """Interpreter, shared library and standard library; no packages, no tests."""
    (to / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2(prefix / "bin" / "python3.12", to / "bin" / "python3.12")
    for name in ("python3", "python"):
        (to / "bin" / name).symlink_to("python3.12")
    library = to / "lib" / "python3.12"
    shutil.copytree(
        prefix / "lib" / "python3.12",
        library,
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "*.a"),
    )
    (library / "site-packages").mkdir()
    for shared in (prefix / "lib").glob("libpython3*.so*"):
        shutil.copy2(shared, to / "lib" / shared.name, follow_symlinks=False)


def build(store: Store) -> None:
    """The image of the Dockerfile, on the base of `make_base`."""
    with tempfile.TemporaryDirectory(prefix="utterwire-pip-") as folder:
        settings = Path(folder, "pip.conf")
        settings.write_text(pip_settings(), encoding="utf-8")
        mounts = [f"{settings}:/etc/pip.conf:ro"]
        certificates = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
        if Path(certificates).is_file():
            mounts.append(f"{certificates}:/etc/ssl/certs/ca-certificates.crt:ro")
        store.buildah(
            *("bud", "--format", "oci", "--pull-never", "--file", "reference_server/Dockerfile"),
            *(
                "--build-arg",
                f"BASE={BASE}",
                "--build-arg",
                "ENGINE=kokoro-onnx",
                "--target",
                "server",
            ),
            *(word for mount in mounts for word in ("--volume", mount)),
            *("--tag", IMAGE, "."),
            quiet=False,
        )


def pip_settings() -> str:
    """The index that pip uses here, for pip in the build; what else is set up here is not."""
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = os.environ.get("PIP_INDEX_URL") or told.stdout.strip()
    if index:
        lines.append(f"index-url = {index}")
    return "\n".join(lines) + "\n"


# The container.


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an image says of how it is run."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    directory: str
    size: int
    digest: str

    @classmethod
    def of(cls, store: Store, image: str) -> Configuration:
        """That of an image of the store."""
        told = json.loads(store.buildah("inspect", "--type", "image", image))
        config = told["OCIv1"]["config"]
        sizes = store.buildah("images", "--json", image)
        size = sum(int(_bytes(one["size"])) for one in json.loads(sizes)[:1])
        return cls(
            entrypoint=tuple(config.get("Entrypoint") or ()),
            command=tuple(config.get("Cmd") or ()),
            environment=dict(each.split("=", 1) for each in config.get("Env") or ()),
            labels=config.get("Labels") or {},
            directory=config.get("WorkingDir") or "/",
            size=size,
            digest=told["FromImageID"],
        )


def _bytes(size: str) -> float:
    number, _, unit = size.partition(" ")
    return float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit.upper()]


def container_command(
    root: Path, model: Path, program: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """How a program runs as process 1 of a container: its own mounts and processes, no more."""
    inside = "\n".join(
        (
            "set -e",
            'mkdir -p "$0/opt/ml/model" "$0/proc" "$0/dev"',
            'mount --bind "$1" "$0/opt/ml/model"',
            'mount -o remount,bind,ro "$0/opt/ml/model"',
            'mount -t proc proc "$0/proc"',
            'mount --rbind /dev "$0/dev"',
            'root="$0"; shift',
            'exec env -i "$@"',
        )
    )
    # As an engine has it; the programs here are found by this machine's own PATH.
    settings = [f"{name}={value}" for name, value in {"HOME": "/root", **env}.items()]
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    return [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"),
        *("sh", "-c", inside, str(root), str(model)),
        *(*settings, chroot, str(root), *program),
    ]


def run(root: Path, model: Path, port: int, configuration: Configuration) -> int:
    """Run a container until it ends; SIGTERM and SIGINT are passed on, as an engine does."""
    environment = {**configuration.environment, "UTTERWIRE_PORT": str(port)}
    program = [*configuration.entrypoint, "serve"]
    process = subprocess.Popen(
        container_command(root, model, program, environment), start_new_session=True
    )

    def pass_on(number: int, _: Any) -> None:
        first = first_process(process.pid)
        if first is not None:
            os.kill(first, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = process.wait()
    return status if status >= 0 else 128 - status


def first_process(parent: int) -> int | None:
    """Process 1 of the container, which unshare has as its only child."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == parent:
                return int(path.parent.name)
    return None


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A container that serves, and how long it took until `/ping` said so."""
    began = time.monotonic()
    process = subprocess.Popen(list(command))
    try:
        while True:
            if time.monotonic() - began > START_S:
                raise NotTried(f"the container was not ready within {START_S:g} s")
            if process.poll() is not None:
                raise NotTried(f"the container ended at once, with status {process.returncode}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield process, time.monotonic() - began
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def free_port() -> int:
    """A port that nobody has at the moment, below those that connections are given.

    One of those would soon be somebody else's, before the container has come to it.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise NotTried("no port of 100 between 20000 and 32000 is free")


def drained(process: subprocess.Popen[bytes], port: int) -> dict[str, Any]:
    """SIGTERM in mid-speech, while a text waits: what came of both, how the process ended."""
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    url = f"ws://127.0.0.1:{port}/invocations-bidirectional-stream"
    received: list[int] = []
    completed: list[int] = []
    ended = ""
    told_at = 0.0
    with connect(url, compression=None, max_size=None, open_timeout=30) as session:
        unsent = list(SPOKEN)
        while True:
            try:
                while unsent:
                    session.send(json.dumps({"text": unsent.pop(0)}))
                message = session.recv(timeout=120)
            except (ConnectionClosed, TimeoutError) as error:
                # The server may have gone before the second text was written.
                ended = f"nothing: {type(error).__name__}"
                break
            if isinstance(message, bytes):
                received[-1] += len(message)
                if not told_at:
                    told_at = time.monotonic()
                    process.terminate()
                continue
            told = json.loads(message)
            if told["type"] == "synthesis_start":
                received.append(0)
            elif told["type"] == "synthesis_complete":
                completed.append(told["audio_bytes"])
            elif told["type"] in ("error", "session_closed"):
                ended = told.get("reason") or told["code"]
                break
    if not told_at:
        told_at = time.monotonic()
        process.terminate()
    status: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(60)
    took = time.monotonic() - told_at
    return {
        "texts": len(SPOKEN),
        "audio_bytes_told": completed,
        "audio_bytes_received": received,
        "session_closed": ended,
        "exit_status": status,
        "ended_after_s": round(took, 1),
        "nothing_lost": len(completed) == len(SPOKEN)
        and completed == received
        and ended == "going_away"
        and status == 0
        and took < SIGKILL_S,
    }


def judged(command: Sequence[str], folder: Path) -> dict[str, Any]:
    """What the suite says of the container, by the profile `sagemaker`."""
    launch = [each if each != PORT else "{port}" for each in command]
    (folder / "endpoints.toml").write_text(
        "\n".join(
            (
                "[endpoint.container]",
                f"launch = {json.dumps(launch)}",
                'ready_url = "http://127.0.0.1:{port}/ping"',
                f"profiles = {json.dumps(list(PROFILES))}",
                "max_waiting = 16",
                "timeouts = { ready_s = 480, shutdown_s = 20 }",
            )
        ),
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "utterwire_conformance", "--endpoint", "container"),
            *("--endpoints", str(folder / "endpoints.toml"), "--profile", "sagemaker"),
            *("--no-fuzz", "--report", str(folder / "report")),
        ],
        cwd=ROOT,
        check=False,
    )
    report = folder / "report" / "report.json"
    if not report.is_file():
        raise NotTried(f"the suite wrote no report (status {done.returncode})")
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    verdicts = {
        each["requirement"]: each["verdict"] for each in results if each["profile"] == "sagemaker"
    }
    return {
        "exit_status": done.returncode,
        "counts": {
            verdict: list(verdicts.values()).count(verdict)
            for verdict in sorted(set(verdicts.values()))
        },
        "verdicts": verdicts,
    }


#: Stands for the port in a command, until there is one.
PORT: Final = "PORT"


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"build_image: {line}", file=sys.stderr, flush=True)


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model-dir", type=Path, required=True, help="the model folder")
    parser.add_argument("--python", help="a Python 3.12 to put under /usr/local of the base")
    parser.add_argument(
        "--store", type=Path, default=ROOT / ".tox" / "image", help="folder of buildah's images"
    )
    parser.add_argument("--new-base", action="store_true", help="make the base anew")
    parser.add_argument("--no-build", action="store_true", help="take the image of an earlier run")
    parser.add_argument("--out", default="evidence/image.json", help="a file, or - for stdout")
    parser.add_argument("--run", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """See the module's text, for the exit status too."""
    values = arguments_of(given)
    store = Store(values.store.resolve())
    try:
        if values.run is not None:
            configuration = Configuration.of(store, IMAGE)
            return run(values.root, values.model_dir.resolve(), values.run, configuration)
        return everything(store, values, list(sys.argv[1:] if given is None else given))
    except NotTried as error:
        say(str(error))
        return 2


def everything(store: Store, values: argparse.Namespace, given: list[str]) -> int:
    """Build, run, judge, end; the result is written."""
    missing = [name for name in ("buildah", "debootstrap", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        raise NotTried(f"needs root and {', '.join(missing) or 'nothing else'} (apt-get install)")
    started = datetime.datetime.now(datetime.UTC)
    began = time.monotonic()
    if values.new_base or not store.has(BASE):
        make_base(store, find_python(values.python))
    base_s = time.monotonic() - began
    began = time.monotonic()
    if not values.no_build:
        build(store)
    build_s = time.monotonic() - began
    configuration = Configuration.of(store, IMAGE)
    with store.mounted(IMAGE) as (root, _), tempfile.TemporaryDirectory() as folder:
        packages = root / "opt" / "utterwire" / "lib" / "python3.12" / "site-packages"
        torch = any(packages.glob("torch-*"))
        command = [
            *(sys.executable, str(Path(__file__).resolve()), "--store", str(store.folder)),
            *("--model-dir", str(values.model_dir.resolve()), "--root", str(root), "--run", PORT),
        ]
        say("SIGTERM in mid-speech")
        port = free_port()
        with running([*command[:-1], str(port)], port) as (process, ready_s):
            drain = drained(process, port)
        say(f"nothing lost: {drain['nothing_lost']}; now the suite")
        verdicts = judged(command, Path(folder))
    # Where folders are on this machine is nobody's affair.
    paths = {str(path) for path in (values.model_dir, values.store, values.python)}
    shown = ["PATH" if word in paths else word for word in given]
    result = record(["python", "scripts/build_image.py", *shown], started, ("websockets",))
    result |= {
        "buildah": store.buildah("version").splitlines()[0].partition(":")[2].strip(),
        "base": f"debootstrap {SUITE} and Python 3.12",
        "built_in_this_run": not values.no_build,
        "base_s": round(base_s),
        "build_s": round(build_s),
        "image": {
            "engine": configuration.labels.get("org.utterwire.engine"),
            "digest": configuration.digest,
            "size_mb": round(configuration.size / 1e6),
            "entrypoint": list(configuration.entrypoint),
            "labels": dict(configuration.labels),
            "has_torch": torch,
        },
        "ready_s": round(ready_s, 1),
        "sigterm": drain,
        "sagemaker": verdicts,
    }
    write(result, values.out)
    good = drain["nothing_lost"] and verdicts["exit_status"] == 0 and not torch
    say("all of it holds" if good else "something does not hold: see the result")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
