"""`plan`: from a measurement to scaling, and goals that nothing reaches."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utterwire_server.deploy import cli
from utterwire_server.deploy.capacity import NOTICE_S, Goals, plan, read_bench
from utterwire_server.deploy.failure import DeployFailed
from utterwire_server.deploy.scaling import Scaling, read_scaling


def bench(
    *loads: tuple[int, float, int], sessions: int = 256, more: bool = False
) -> dict[str, Any]:
    """A result of a machine: listeners, p95 of the first byte, underruns."""
    carried = [count for count, p95, underruns in loads if p95 <= 0.5 and not underruns]
    return {
        "format": 1,
        "method": "loopback",
        "utterwire": "0.1.0",
        "machine": {
            "system": "Linux x86_64",
            "processor": None,
            "cores": 4,
            "memory_bytes": None,
            "python": "3.12.1",
            "versions": {},
        },
        "engine": {"name": "kokoro-onnx", "concurrency": 1, "voice": "af_heart", "options": {}},
        "cold_start_s": 6.0,
        "process_start_s": 9.5,
        "alone": [
            {
                "characters": 32,
                "speech_s": 2.0,
                "first_byte_s": 0.18,
                "first_byte_p95_s": 0.2,
                "real_time_factor": 0.1,
            }
        ],
        "real_time_factor": 0.1,
        "capacity": {
            "listeners": max(carried, default=0),
            "goal_first_byte_p95_s": 0.5,
            "step_s": 20,
            "at_most": 64,
            "more_possible": more,
            "loads": [
                {
                    "listeners": count,
                    "utterances": 10,
                    "first_byte_p50_s": p95,
                    "first_byte_p95_s": p95,
                    "underruns": underruns,
                    "starved_s": 0.0,
                    "refused": 0,
                    "engine_share": 0.5,
                    "carried": count in carried,
                }
                for count, p95, underruns in loads
            ],
        },
        "limits": {"max_sessions": sessions, "shutdown_timeout_s": 20},
    }


EIGHT = bench((1, 0.2, 0), (8, 0.4, 0), (12, 0.9, 0), (16, 0.45, 3))


def test_the_example_by_hand() -> None:
    scaling, how = plan(EIGHT, Goals(peak=100))
    # 8 carried, a quarter free: 6. 100 / 6 is 17. 0.8 * 6 / 2 is 2.4. 300 + 9.5 s is 310 s.
    assert scaling == Scaling(
        min_instances=1,
        max_instances=17,
        target_requests=6,
        scale_in_requests=2,
        scale_out_cooldown_s=310,
        scale_in_cooldown_s=620,
        scale_in_minutes=11,
    )
    assert how[0].startswith("one machine carries 8 at once with p95 of the first byte within 500")
    assert "a new instance helps after 340 s" in how[1]


def test_growth_leaves_room_for_who_comes_meanwhile() -> None:
    # 6 a minute for 339.5 s are 34; ten instances share them: 8 - 3.4 leaves 4.
    scaling, how = plan(EIGHT, Goals(peak=60, least=10, growth=6))
    assert scaling.target_requests == 4
    assert any("34 more may come within 340 s" in line for line in how)
    # Slow growth asks for less than what is kept free anyway.
    assert plan(EIGHT, Goals(peak=60, least=10, growth=0.1))[0].target_requests == 6


def test_a_looser_goal_may_carry_more_and_a_tighter_one_less() -> None:
    assert plan(EIGHT, Goals(peak=10, first_byte_s=1.0))[0].target_requests == 9
    assert plan(EIGHT, Goals(peak=10, first_byte_s=0.3, spare=0.0))[0].target_requests == 1


def test_sessions_bound_what_is_carried_and_untried_numbers_are_told() -> None:
    assert plan(bench((8, 0.4, 0), sessions=4), Goals(peak=4))[0].target_requests == 3
    how = plan(bench((64, 0.4, 0), more=True), Goals(most=3))[1]
    assert any("more than 64 were not tried" in line for line in how)
    assert any(line.startswith("at most 3 instances (--max), which have 144") for line in how)


def test_without_the_age_of_the_process_the_cold_start_counts() -> None:
    unknown = {**EIGHT, "process_start_s": None}
    assert "6.0 s until the server is ready" in plan(unknown, Goals(peak=1))[1][1]


@pytest.mark.parametrize(
    ("result", "goals", "problem", "next_step"),
    [
        (EIGHT, Goals(peak=1, first_byte_s=0.1), "out of reach: somebody who is alone", "faster"),
        (bench((1, 0.9, 0)), Goals(peak=1), "this machine carries nobody", "faster machine"),
        (bench((1, 0.4, 2)), Goals(peak=1), "this machine carries nobody", "faster machine"),
        (bench((1, 0.4, 0)), Goals(peak=1), "carries 1 has no room to keep 25% free", "--spare 0"),
        (EIGHT, Goals(peak=100, most=4), "need 17 instances with 6 each, and --max", "--max 17"),
        (EIGHT, Goals(peak=9, growth=60), "60 more listeners a minute are 340", "--min 49"),
        (
            bench((1, 0.4, 0)),
            Goals(peak=9, growth=60, spare=0),
            "of these machines carry 1 in all",
            "expect slower growth",
        ),
    ],
)
def test_goals_that_are_out_of_reach(
    result: dict[str, Any], goals: Goals, problem: str, next_step: str
) -> None:
    with pytest.raises(DeployFailed) as failed:
        plan(result, goals)
    assert problem in failed.value.problem
    assert next_step in failed.value.next_step


def test_what_is_advised_is_enough() -> None:
    with pytest.raises(DeployFailed) as failed:
        plan(EIGHT, Goals(peak=9, growth=60))
    least = int(failed.value.next_step.partition("--min ")[2].partition(",")[0])
    assert plan(EIGHT, Goals(peak=9, growth=60, least=least))[0].target_requests >= 1
    with pytest.raises(DeployFailed):
        plan(EIGHT, Goals(peak=9, growth=60, least=least - 1))


@pytest.mark.parametrize(
    "goals",
    [
        {},
        {"peak": 0},
        {"peak": 1, "growth": -1.0},
        {"peak": 1, "spare": 1.0},
        {"peak": 1, "start_s": float("inf")},
        {"most": 1, "least": 2},
    ],
)
def test_goals_that_cannot_be(goals: dict[str, Any]) -> None:
    with pytest.raises(DeployFailed) as failed:
        Goals(**goals)
    assert failed.value.status == 2


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    carried=st.integers(1, 500),
    least=st.integers(1, 20),
    peak=st.integers(1, 5_000),
    growth=st.none() | st.floats(0.1, 100),
    spare=st.floats(0, 0.9),
    start_s=st.floats(0, 2_000),
)
def test_every_plan_keeps_its_promises(
    carried: int, least: int, peak: int, growth: float | None, spare: float, start_s: float
) -> None:
    goals = Goals(peak=peak, least=least, growth=growth, spare=spare, start_s=start_s)
    try:
        scaling, _ = plan(bench((carried, 0.3, 0), sessions=1_000), goals)
    except DeployFailed:
        return
    target = scaling.target_requests
    assert 1 <= target <= carried
    assert scaling.max_instances * target >= peak
    assert scaling.max_instances >= least
    # Who comes before help does still finds room.
    lead_s = NOTICE_S + start_s + 9.5
    assert growth is None or least * target + growth * lead_s / 60 <= least * carried + 1e-6
    # Taking one away overloads nobody (where there is more than one listener each).
    staying = (scaling.scale_in_requests) * (least + 1) / least
    assert scaling.scale_in_requests == 1 or staying <= target


def test_a_plan_is_written_and_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.json").write_text(json.dumps(EIGHT), encoding="utf-8")
    flags = ["plan", "demo", "--from", "bench.json", "--peak", "20"]
    assert cli.main([*flags, "--json", "scaling.json"]) == 0
    shown = capsys.readouterr().out
    assert "1 to 4 instances, 6 listeners at once each" in shown
    assert shown.endswith("Use it: utterwire-deploy scale demo --plan scaling.json\n")
    assert dataclasses.astuple(read_scaling(Path("scaling.json")))[:3] == (1, 4, 6)
    assert cli.main([*flags, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scaling"] == dataclasses.asdict(read_scaling(Path("scaling.json")))
    assert len(told["how"]) == 6
    assert cli.main(flags) == 0
    assert "Keep it: --json scaling.json" in capsys.readouterr().out
    assert cli.main([*flags, "--json", "none/scaling.json"]) == 1
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "is no result of bench: $: "),
        (json.dumps({**EIGHT, "format": 2}), "$.format: 1 was expected"),
    ],
)
def test_what_is_no_result_of_bench(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DeployFailed) as failed:
        read_bench(path)
    assert words in failed.value.problem
    assert "utterwire-server bench --json bench.json" in failed.value.next_step


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"format": 2, "scaling": {}}',
        '{"format": 1, "scaling": {"min_instances": 1}}',
        '{"format": 1, "scaling": []}',
    ],
)
def test_what_is_no_plan(content: str, tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DeployFailed, match="is no plan"):
        read_scaling(path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0, 1, 1, 1), "min_instances is 0; it must be 1 or more"),
        ((1, 1, 1.5, 1), "target_requests is 1.5; it must be a whole number"),
        ((1, 1, True, 1), "target_requests is True"),
        ((1, 1, 2, 3), "would be taken away below 3 at once each, and added above 2"),
        ((1, 1, 2, 1, 0, 0, 1_441), "a day, 1440, is the most"),
    ],
)
def test_scaling_that_cannot_be(values: tuple[Any, ...], words: str) -> None:
    with pytest.raises(DeployFailed) as failed:
        Scaling(*values)
    assert words in failed.value.problem
