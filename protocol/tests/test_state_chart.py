from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from utterwire_protocol import (
    TRANSITIONS,
    UTTERANCE_TRANSITIONS,
    Move,
    Role,
    SessionInput,
    SessionState,
    UtteranceState,
    Verdict,
)
from utterwire_protocol.state_chart import data, main, render

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    "states.md": ROOT / "spec" / "states.md",
    "states.json": ROOT / "schemas" / "utterwire_schemas" / "states.json",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_that_of_the_tables(name: str) -> None:
    assert main(["--check", str(DOCUMENTS[name])]) == 0


def test_the_data_say_every_move() -> None:
    tables = data()
    for role, table in TRANSITIONS.items():
        for state, row in table.items():
            assert set(tables[role.value]["session"][state.value]) == {e.value for e in row}
    assert tables["endpoint"]["session"]["open"]["hello"] == {
        "to": "open",
        "verdict": "reject",
        "code": "invalid_request",
    }
    assert tables["client"]["utterance"]["waiting"]["audio"] == {"to": "running"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_drift_is_told_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / name
    told = (
        f"{other} differs from the tables of the core: "
        f"run python -m utterwire_protocol.state_chart --write {other}\n"
    )
    assert main(["--check", str(other)]) == 1
    assert capsys.readouterr() == ("", told)
    assert main(["--write", str(other)]) == 0
    assert main(["--check", str(other)]) == 0
    other.write_text(other.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert main(["--check", str(other)]) == 1
    assert capsys.readouterr() == ("", told)
    assert main([]) == 0
    assert capsys.readouterr() == (render(), "")


@pytest.mark.parametrize("arguments", [["--write"], ["--check", "a", "b"], ["a"], ["--help"]])
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    usage = "usage: python -m utterwire_protocol.state_chart [--write FILE | --check FILE]\n"
    assert capsys.readouterr() == ("", usage)


def test_it_runs_as_a_program() -> None:
    command = [sys.executable, "-W", "error", "-m", "utterwire_protocol.state_chart"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode("utf-8") == render()
    assert done.stderr == b""


def test_every_move_is_in_the_document() -> None:
    text = render()
    for role in Role:
        assert f"## {role.value.capitalize()}: session" in text
        assert f"## {role.value.capitalize()}: utterance" in text
    assert "| `hello` | open | open; rejected with `invalid_request` | ignored |" in text
    assert "| `error`, rejected | rejected | - |" in text
    assert "| `error` is handed over | - | - | failed |" in text
    assert "| the session ends early | lost | lost |" in text
    assert "going_away --> closing: close" in text


def test_tables_hold_together() -> None:
    for table in TRANSITIONS.values():
        assert SessionState.FRESH in table
        for state, row in table.items():
            for move in row.values():
                assert move.to in table
                assert move.verdict is not Verdict.IGNORE or move.to is state
                assert move.code is None or move.verdict is Verdict.REJECT
        # Whatever comes, a closed session stays closed.
        assert {move.to for move in table[SessionState.CLOSED].values()} == {SessionState.CLOSED}
    for utterances in UTTERANCE_TRANSITIONS.values():
        assert UtteranceState.WAITING in utterances
        for moves in utterances.values():
            assert set(moves.values()) <= set(utterances)


@pytest.mark.parametrize("role", Role)
def test_every_state_can_be_reached(role: Role) -> None:
    reached = {SessionState.FRESH}
    while more := {m.to for s in reached for m in TRANSITIONS[role][s].values()} - reached:
        reached |= more
    assert reached == set(TRANSITIONS[role])
    spoken = {UtteranceState.WAITING}
    table = UTTERANCE_TRANSITIONS[role]
    while others := {to for s in spoken for to in table[s].values()} - spoken:
        spoken |= others
    assert spoken == set(table)


def test_tables_cannot_be_changed() -> None:
    row: Any = TRANSITIONS[Role.CLIENT][SessionState.FRESH]
    with pytest.raises(TypeError):
        row[SessionInput.IDLE] = Move(SessionState.CLOSED)
