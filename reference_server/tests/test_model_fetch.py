"""Fetching the model over HTTP, against a server that behaves in every way servers do."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx", reason="the extra `model` is not installed")
pytest.importorskip("onnx", reason="the extra `model` is not installed")

from utterwire_server import cli
from utterwire_server.model import commands
from utterwire_server.model.download import Downloader, Progress
from utterwire_server.model.folder import ModelError, ModelFolder
from utterwire_server.model.manifest import digest, problems, read_manifest
from utterwire_server.model.source import Expected, Source, load_source

BODY = bytes(range(256)) * 400
SHA256 = hashlib.sha256(BODY).hexdigest()
COMMIT = "a" * 40
OTHER_COMMIT = "b" * 40


@dataclass
class Site:
    """What the server has, and what goes wrong: `faults` are used up, one for each request."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Callable[[BaseHTTPRequestHandler, bytes], bool]] = field(default_factory=list)
    commit: str | None = None
    linked: bool = False
    etags: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _answer(handler: BaseHTTPRequestHandler, site: Site, body: bytes) -> None:
    etag = f'"{hashlib.md5(body).hexdigest()}"'
    start, status = 0, 200
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    if asked and handler.headers.get("If-Range", etag) == etag:
        start, status = int(asked[1]), 206
        if start >= len(body):
            handler.send_response(416)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
    handler.send_response(status)
    if status == 206:
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    if site.etags:
        handler.send_header("ETag", etag)
    handler.send_header("Content-Length", str(len(body) - start))
    handler.end_headers()
    handler.wfile.write(body[start:])


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site({"/file": BODY})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append((self.path, self.headers.get("Range")))
            body = site.files.get(self.path.removeprefix("/moved"))
            self.close_connection = True
            if body is None:
                self.send_error(404)
            elif site.faults and site.faults.pop(0)(self, body):
                pass
            elif self.path.startswith(("/hexgrad", "/tiny")) and not self.path.startswith("/moved"):
                # The hub names commit and digest, and sends on to where the file is.
                self.send_response(302)
                if site.commit:
                    self.send_header("X-Repo-Commit", site.commit)
                if site.linked:
                    self.send_header("X-Linked-ETag", f'"{hashlib.sha256(body).hexdigest()}"')
                self.send_header("Location", f"/moved{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                _answer(self, site, body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def downloader(tmp_path: Path, pauses: list[float]) -> Iterator[Downloader]:
    with Downloader(tmp_path, Progress(io.StringIO()), pause=pauses.append) as made:
        yield made


def _part_only(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
    handler.send_response(200)
    handler.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:50_000])
    handler.wfile.flush()
    return True


def _status(code: int, **headers: str) -> Callable[[BaseHTTPRequestHandler, bytes], bool]:
    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        return True

    return answer


def test_a_file(site: Site, downloader: Downloader, tmp_path: Path, pauses: list[float]) -> None:
    got = downloader.fetch(f"{site.url}/file", "deep/file", Expected(len(BODY), SHA256))
    assert (tmp_path / "deep/file").read_bytes() == BODY
    assert (got.size, got.sha256, got.confirmed) == (len(BODY), SHA256, True)
    assert not list(tmp_path.rglob("*.part"))
    assert not pauses
    downloader.fetch(f"{site.url}/file", "deep/file", Expected(len(BODY), SHA256))
    assert len(site.requests) == 1, "what is there is not fetched again"


def test_a_digest_that_nobody_knows_is_recorded(site: Site, downloader: Downloader) -> None:
    got = downloader.fetch(f"{site.url}/file", "file", Expected())
    assert (got.sha256, got.confirmed) == (SHA256, False)


@pytest.mark.parametrize("known", [True, False], ids=["digest", "entity-tag"])
def test_a_broken_transfer_goes_on_where_it_stopped(
    site: Site, downloader: Downloader, tmp_path: Path, pauses: list[float], known: bool
) -> None:
    site.faults = [_part_only]
    expected = Expected(len(BODY), SHA256) if known else Expected()
    downloader.fetch(f"{site.url}/file", "file", expected)
    assert (tmp_path / "file").read_bytes() == BODY
    assert [asked for _, asked in site.requests] == [None, "bytes=50000-"]
    assert pauses == [1.0]


def test_another_run_goes_on_too(site: Site, downloader: Downloader, tmp_path: Path) -> None:
    site.faults = [_part_only] * 5
    with pytest.raises(ModelError, match="5 attempts; run the command again"):
        downloader.fetch(f"{site.url}/file", "file", Expected())
    assert not (tmp_path / "file").exists()
    downloader.fetch(f"{site.url}/file", "file", Expected())
    assert site.requests[-1][1] == "bytes=50000-"
    assert (tmp_path / "file").read_bytes() == BODY


def test_without_entity_tag_or_digest_it_starts_over(site: Site, downloader: Downloader) -> None:
    def cut(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:50_000])
        return True

    site.faults = [cut]
    got = downloader.fetch(f"{site.url}/file", "file", Expected())
    assert got.sha256 == SHA256
    assert [asked for _, asked in site.requests] == [None, None]


@pytest.mark.parametrize("tagged", [True, False])
def test_a_file_that_changes_in_between_is_fetched_whole(
    site: Site, downloader: Downloader, tmp_path: Path, tagged: bool
) -> None:
    new = BODY[::-1]
    site.etags = tagged
    expected = Expected(len(new), hashlib.sha256(new).hexdigest())
    (tmp_path / "file.part").write_bytes(BODY[:1000])
    (tmp_path / "file.json").write_text(
        json.dumps({"url": f"{site.url}/file", "etag": '"of the old one"' if tagged else None})
    )
    site.files["/file"] = new
    downloader.fetch(f"{site.url}/file", "file", expected)
    assert (tmp_path / "file").read_bytes() == new


def test_what_is_left_of_another_address_is_not_used(
    site: Site, downloader: Downloader, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file.json").write_text(json.dumps({"url": "http://elsewhere/file"}))
    downloader.fetch(f"{site.url}/file", "file", Expected())
    assert (tmp_path / "file").read_bytes() == BODY


def test_more_than_there_is_was_left(site: Site, downloader: Downloader, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(BODY + b"more")
    (tmp_path / "file.json").write_text(json.dumps({"url": f"{site.url}/file"}))
    downloader.fetch(f"{site.url}/file", "file", Expected(len(BODY), SHA256))
    assert (tmp_path / "file").read_bytes() == BODY


@pytest.mark.parametrize(
    ("expected", "named"),
    [
        (Expected(len(BODY), "0" * 64), "expected 0000"),
        (Expected(len(BODY) + 1, SHA256), "bytes"),
    ],
)
def test_a_wrong_file_is_refused_and_not_kept(
    site: Site, downloader: Downloader, tmp_path: Path, expected: Expected, named: str
) -> None:
    with pytest.raises(ModelError, match=named) as refused:
        downloader.fetch(f"{site.url}/file", "file", expected)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
    assert len(site.requests) == 1


def test_a_file_without_end_is_given_up(site: Site, downloader: Downloader, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="longer than the 100 bytes it may have"):
        downloader.fetch(f"{site.url}/file", "file", Expected(100, SHA256))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.part")) == 0
    assert len(site.requests) == 1


def test_an_address_that_is_none(downloader: Downloader) -> None:
    with pytest.raises(ModelError, match="cannot be fetched"):
        downloader.fetch("http://[::1/file", "file", Expected())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_is_told_at_once(site: Site, downloader: Downloader, status: int) -> None:
    site.faults = [_status(status)]
    with pytest.raises(ModelError, match=f"/file cannot be fetched: the server answers {status}"):
        downloader.fetch(f"{site.url}/file", "file", Expected())
    assert len(site.requests) == 1


def test_a_busy_server_is_asked_again(
    site: Site, downloader: Downloader, pauses: list[float]
) -> None:
    site.faults = [
        _status(503),
        _status(429, Retry_After="7"),
        _status(500, Retry_After="86400"),
    ]
    assert downloader.fetch(f"{site.url}/file", "file", Expected()).sha256 == SHA256
    assert pauses == [1.0, 7.0, 30.0]


def test_a_server_that_is_down(tmp_path: Path, downloader: Downloader, site: Site) -> None:
    site.faults = [_status(502)] * 9
    with pytest.raises(ModelError, match=r"the server answers 502 \(5 attempts"):
        downloader.fetch(f"{site.url}/file", "file", Expected())
    with pytest.raises(ModelError, match=r"cannot be fetched: .*refused.*\(5 attempts"):
        downloader.fetch("http://127.0.0.1:1/file", "file", Expected())


def test_a_redirect_without_end(site: Site, downloader: Downloader) -> None:
    site.faults = [_status(302, Location="/file")] * 50
    with pytest.raises(ModelError, match=r"cannot be fetched: .*redirect"):
        downloader.fetch(f"{site.url}/file", "file", Expected())


# ---- the whole model -----------------------------------------------------------------------------


def voice_file(value: float = 0.25, changes: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """A voice as torch saves one: an archive with a pickle that nobody has to trust."""
    content = {
        "data.pkl": b"torch FloatStorage",
        "byteorder": b"little",
        "data/0": np.full((510, 1, 256), value, "<f4").tobytes(),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {**content, **changes}.items():
            archive.writestr(f"voice/{name}", data)
    return file.getvalue()


@pytest.fixture
def source(site: Site, tiny_graph: Any, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A small model at the site, with the layout of the real one."""
    files = {
        "config.json": json.dumps({"vocab": {"a": 1}}).encode(),
        "kokoro-v1_0.pth": b"weights",
        "voices/af_heart.pt": voice_file(),
        "voices/bm_lewis.pt": voice_file(0.5),
    }
    graph = tiny_graph.SerializeToString()
    source = replace(
        load_source(),
        repository="tiny/model",
        revision=COMMIT,
        hub_files={
            name: Expected(len(data), hashlib.sha256(data).hexdigest())
            for name, data in files.items()
        },
        release_url=f"{site.url}/release",
        graph=Expected(len(graph), hashlib.sha256(graph).hexdigest()),
    )
    for at in (COMMIT, "main"):
        site.files |= {f"/tiny/model/resolve/{at}/{name}": data for name, data in files.items()}
    site.files["/release"] = graph
    site.commit = COMMIT
    monkeypatch.setattr(commands, "load_source", lambda: source)
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.delenv("UTTERWIRE_MODEL_DIR", raising=False)
    monkeypatch.setattr("utterwire_server.model.download.time.sleep", lambda seconds: None)
    return source


def test_the_whole_model(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target)]) == 0
    said = capsys.readouterr()
    assert f"utterwire-server --model-dir {target}" in said.out
    assert "voices/af_heart.pt" in said.err
    folder = ModelFolder(target)
    assert folder.engines == ("kokoro-onnx", "kokoro-torch")
    assert folder.voices == ("af_heart", "bm_lewis")
    assert (folder.styles("bm_lewis") == 0.5).all()
    assert (target / "kokoro.pth").read_bytes() == b"weights"
    manifest = read_manifest(target)
    assert (manifest.source, manifest.revision) == ("hub", COMMIT)
    assert manifest.files["kokoro.onnx"].confirmed
    assert manifest.files["kokoro.onnx"].origin == source.release_url
    assert not manifest.files["kokoro-front.onnx"].confirmed
    assert list(problems(target, manifest)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing else is left"

    assert commands.main(["verify", str(target)]) == 0
    assert "7 files as the manifest has them" in capsys.readouterr().out
    assert cli.main(["model", "list", str(target)]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^af_heart +American English$", listed, re.MULTILINE)
    assert re.search(r"^kokoro-onnx +has its files$", listed, re.MULTILINE)


@pytest.mark.parametrize(
    ("engine", "absent"),
    [("kokoro-onnx", "kokoro.pth"), ("kokoro-torch", "kokoro.onnx")],
)
def test_only_what_an_engine_needs(
    source: Source, site: Site, tmp_path: Path, engine: str, absent: str
) -> None:
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target), "--engines", engine]) == 0
    assert ModelFolder(target).engines == (engine,)
    assert not (target / absent).exists()


def test_a_fetch_that_breaks_off_leaves_nothing_and_goes_on(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model"
    graph = site.files.pop("/release")
    assert commands.main(["fetch", "--to", str(target)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].endswith("/release cannot be fetched: the server answers 404")
    assert not target.exists()
    site.files["/release"] = graph
    before = len(site.requests)
    assert commands.main(["fetch", "--to", str(target)]) == 0
    assert [path for path, _ in site.requests[before:]] == ["/release"]
    assert ModelFolder(target).engines == ("kokoro-onnx", "kokoro-torch")


def test_a_full_disk_is_told_and_the_fetch_goes_on_later(
    source: Source,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "model"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert commands.main(["fetch", "--to", str(target)]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f"utterwire-server model fetch: No space left on device: {target}"
    assert not target.exists()
    assert commands.main(["fetch", "--to", str(target)]) == 0
    assert commands.main(["fetch", "--to", "~no-such-user/model"]) == 1
    assert capsys.readouterr().err.endswith(
        "~no-such-user/model cannot be: there is no such user\n"
    )


def test_a_wrong_digest(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.files[f"/tiny/model/resolve/{COMMIT}/voices/af_heart.pt"] = voice_file(0.75)
    assert commands.main(["fetch", "--to", str(tmp_path / "model")]) == 1
    assert "voices/af_heart.pt is not the file it should be" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_a_branch_is_fetched_at_the_commit_that_it_is_at_first(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target), "--revision", "main"]) == 0
    assert "4 had no digest known before" in capsys.readouterr().out
    manifest = read_manifest(target)
    assert manifest.revision == COMMIT
    assert not manifest.files["config.json"].confirmed
    asked = [path for path, _ in site.requests if path.startswith("/tiny")]
    assert sum("/main/" in path for path in asked) == 1
    assert sum(f"/{COMMIT}/" in path for path in asked) == 3


def test_a_commit_that_is_none_becomes_no_part_of_a_path(
    source: Source, site: Site, tmp_path: Path
) -> None:
    site.commit = "../../../../elsewhere"
    target = tmp_path / "a" / "b" / "model"
    commands.main(["fetch", "--to", str(target), "--revision", "main"])
    assert read_manifest(target).revision == "main"
    asked = [path for path, _ in site.requests if path.startswith("/tiny")]
    assert sum("/main/" in path for path in asked) == 4
    assert not list(tmp_path.rglob("elsewhere*"))


def test_a_hub_that_sends_another_commit(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.commit = OTHER_COMMIT
    assert commands.main(["fetch", "--to", str(tmp_path / "model")]) == 1
    assert f"of {OTHER_COMMIT} instead of {COMMIT}" in capsys.readouterr().err


def test_another_revision_is_checked_by_what_the_hub_tells(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.linked = True
    name = "/tiny/model/resolve/main/config.json"

    def spoiled(handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        site.files[name] = b"{}"
        handler.send_response(302)
        handler.send_header("X-Linked-ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        handler.send_header("Location", f"/moved{name}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    site.faults = [spoiled]
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target), "--revision", "main"]) == 1
    assert "config.json is not the file it should be" in capsys.readouterr().err


def test_another_graph_is_refused_in_one_line(
    source: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_graph: Any
) -> None:
    tiny_graph.graph.output[0].name = "waveform"
    graph = tiny_graph.SerializeToString()
    other = replace(source, graph=Expected(len(graph), hashlib.sha256(graph).hexdigest()))
    site.files["/release"] = graph
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commands, "load_source", lambda: other)
        assert commands.main(["fetch", "--to", str(tmp_path / "model")]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "kokoro.onnx is not the graph that is expected: its inputs and outputs" in last
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"no archive", "is damaged"),
        (voice_file(changes={"data/0": b"short"}), "is not one tensor"),
        (voice_file(changes={"data/1": b"more"}), "is not one tensor"),
        (voice_file(changes={"byteorder": b"big"}), "is not one tensor"),
        (voice_file(changes={"data.pkl": b"HalfStorage"}), "is not one tensor"),
        (voice_file(float("nan")), "is damaged"),
    ],
)
def test_a_voice_that_is_none(
    source: Source,
    site: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    problem: str,
) -> None:
    site.files[f"/tiny/model/resolve/{COMMIT}/voices/af_heart.pt"] = content
    site.files["/tiny/model/resolve/main/voices/af_heart.pt"] = content
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target), "--revision", "main"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "af_heart" in last
    assert problem in last
    assert not target.exists()


def test_a_folder_that_is_there_stays(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").touch()
    assert commands.main(["fetch", "--to", str(tmp_path)]) == 1
    assert "is there already; name another folder with --to" in capsys.readouterr().err
    assert (tmp_path / "kept").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert commands.main(["fetch", "--to", str(empty)]) == 0
    assert ModelFolder(empty).voices == ("af_heart", "bm_lewis")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "fetch: interrupted; run it again to go on from here"),
        (
            OSError(errno.ENOSPC, "No space left on device", "x"),
            1,
            "fetch: No space left on device: x",
        ),
    ],
)
def test_what_comes_from_outside_ends_in_one_line(
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    line: str,
) -> None:
    def stop(*given: object) -> None:
        raise error

    monkeypatch.setattr("utterwire_server.model.parts._cut", stop)
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target)]) == status
    assert capsys.readouterr().err.splitlines()[-1] == f"utterwire-server model {line}"
    assert not target.exists()


def test_one_at_a_time(source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from utterwire_server.model.parts import workshop

    with workshop(tmp_path / "model"):
        assert commands.main(["fetch", "--to", str(tmp_path / "model")]) == 1
    assert "is being fetched by another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: (folder / "kokoro.pth").unlink(), "kokoro.pth is missing"),
        (lambda folder: (folder / "kokoro.pth").write_bytes(b"WEIGHTS"), "kokoro.pth is damaged"),
        (lambda folder: (folder / "kokoro.pth").write_bytes(b"w"), "has 1 bytes instead of 7"),
        (lambda folder: (folder / "more").touch(), "more is not in manifest.json"),
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "manifest.json is damaged"),
    ],
)
def test_verify_finds(
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    problem: str,
) -> None:
    target = tmp_path / "model"
    assert commands.main(["fetch", "--to", str(target)]) == 0
    (target / "statistics" / "kokoro-onnx").mkdir(parents=True)
    (target / "statistics" / "kokoro-onnx" / "af_heart.npz").touch()
    # A link to what was fetched must not be written through.
    spoil(target)
    capsys.readouterr()
    assert commands.main(["verify", str(target)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert problem in line


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "COMMAND"),
        (["fetch", "--engines", "tone"], "tone is no engine of kokoro-onnx, kokoro-torch"),
        (["fetch", "--from", "elsewhere"], "invalid choice"),
        (["fetch", "--reach"], "unrecognized arguments"),
    ],
)
def test_a_mistake_in_the_arguments(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert commands.main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert problem in line


def test_no_folder_to_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UTTERWIRE_MODEL_DIR", str(tmp_path / "none"))
    assert commands.main(["list"]) == 1
    assert "is no folder" in capsys.readouterr().err


def test_the_digests_that_are_known() -> None:
    source = load_source()
    assert len(source.voices) == 54
    assert re.fullmatch(r"[0-9a-f]{40}", source.revision)
    for expected in (*source.hub_files.values(), source.graph):
        assert re.fullmatch(r"[0-9a-f]{64}", expected.sha256 or "")
    assert digest(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
