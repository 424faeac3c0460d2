"""The router's tables: names of errors by operation, faults by name, what is needed to run."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from utterwire_conformance.router import requisites
from utterwire_conformance.router.errors import (
    BIDIRECTIONAL,
    CLASSIC,
    CONTROL,
    CallFailed,
    StreamFailed,
    container_refused,
    internal,
    invalid_input,
    throttled,
    unavailable,
)
from utterwire_conformance.router.faults import FAULTS, Plan, UnknownFault
from utterwire_conformance.router.options import Options


@pytest.mark.parametrize(
    ("failure", "status", "names"),
    [
        (
            invalid_input("x"),
            400,
            ("InputValidationError", "ValidationError", "ValidationException"),
        ),
        (container_refused("x"), 424, ("ModelError", "ModelError", "ModelError")),
        (internal("x"), 500, ("InternalServerError", "InternalFailure", "InternalFailure")),
        (
            unavailable("x"),
            503,
            ("ServiceUnavailableError", "ServiceUnavailable", "ServiceUnavailable"),
        ),
        (throttled("x"), 429, ("ThrottlingException",) * 3),
    ],
)
def test_errors_are_named_as_each_operation_names_them(
    failure: CallFailed, status: int, names: tuple[str, ...]
) -> None:
    for operation, name in zip((BIDIRECTIONAL, CLASSIC, CONTROL), names, strict=True):
        told, headers, body = failure.answer(operation)
        fields = json.loads(body)
        assert told == status
        assert dict(headers)["x-amzn-errortype"] == name
        assert fields.get("Message", fields.get("message")) == "x"
    assert json.loads(failure.answer(CONTROL)[2])["__type"] == names[2]


def test_a_model_error_tells_what_the_container_said() -> None:
    body = json.loads(container_refused("busy", status=503).answer(CLASSIC)[2])
    assert (body["OriginalStatusCode"], body["OriginalMessage"]) == (503, "busy")


@pytest.mark.parametrize(
    ("failure", "body", "line"),
    [
        (
            StreamFailed("ModelStreamError", "bye", "1011"),
            {"Message": "bye", "ErrorCode": "1011"},
            "ModelStreamError 1011: bye",
        ),
        (
            StreamFailed("InternalStreamFailure", ""),
            {"Message": ""},
            "InternalStreamFailure",
        ),
    ],
)
def test_exceptions_in_a_stream(failure: StreamFailed, body: dict[str, str], line: str) -> None:
    assert failure.body() == body
    assert str(failure) == line


def test_every_fault_says_what_it_does_and_does_one_thing() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert len(fault.what) > 20
        assert not (fault.refuses is not None and fault.comes_in_a_stream), name
        if fault.refuses is not None:
            assert fault.refuses().status >= 400
        if fault.breaks is not None:
            assert fault.breaks().name in ("ModelStreamError", "InternalStreamFailure")


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(UnknownFault, match="no fault is called nonsense"):
        Plan("nonsense")


def test_a_fault_that_refuses_comes_so_many_times() -> None:
    plan = Plan("throttled", "goaway", times=2)
    assert [plan.refusal() is not None for _ in range(3)] == [True, True, False]
    assert plan.breach(100) is None


def test_faults_are_counted_for_an_endpoint_that_is_named_after_one() -> None:
    pytest.importorskip("h2", reason="the router needs the extra aws")
    pytest.importorskip("smithy_aws_event_stream", reason="the router needs Python 3.12")
    import ssl

    from utterwire_conformance.router.server import Router

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    router = Router("http://localhost", context, plan=Plan(after=1, times=1))
    found = [router._plan("fault-throttled").refusal() is not None for _ in range(2)]
    assert found == [True, False]


def test_a_fault_in_a_stream_comes_after_so_many_parts() -> None:
    plan = Plan("model-stream-error", after=2)
    assert plan.refusal() is None
    assert plan.breach(1) is None
    found = plan.breach(2)
    assert found is not None
    assert found.name == "model-stream-error"
    assert plan.has("model-stream-error")
    assert not plan.has("goaway")


@pytest.mark.parametrize(
    ("name", "status"),
    [("endpoint-missing", "missing"), ("endpoint-creating", "Creating"), ("throttled", None)],
)
def test_what_describe_says(name: str, status: str | None) -> None:
    assert Plan(name).status == status


def test_what_is_documented_is_the_default() -> None:
    options = Options()
    assert (options.accept_s, options.ping_interval_s, options.missed_pongs) == (0.25, 60.0, 5)
    assert options.normal_close == "error"


def test_an_old_python_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", _version(3, 11))
    told = requisites.missing()
    assert told == "it needs Python 3.12 or newer, as the AWS SDK does; this is 3.11"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", _version(3, 12))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "h2" else object())
    assert requisites.missing() == "it needs h2: pip install 'utterwire[aws]'"


def test_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", _version(3, 12))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert requisites.missing() is None


class _Version(tuple[int, ...]):
    @property
    def major(self) -> int:
        return self[0]

    @property
    def minor(self) -> int:
        return self[1]


def _version(*numbers: int) -> Any:
    return _Version(numbers)
