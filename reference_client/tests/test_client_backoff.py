"""How long to wait before trying again."""

import pytest
from utterwire_client.backoff import Backoff


def test_waits_double_up_to_a_bound_and_are_random_in_their_upper_half() -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    backoff = Backoff(first_s=1.0, most_s=3.0, uniform=uniform)
    assert [backoff.wait_s() for _ in range(4)] == [0.5, 1.0, 1.5, 1.5]
    assert asked == [(0.5, 1.0), (1.0, 2.0), (1.5, 3.0), (1.5, 3.0)]


@pytest.mark.parametrize("told", [0.0, 0.5, 60.0])
def test_what_the_endpoint_says_is_the_least(told: float) -> None:
    waits = {Backoff().wait_s(told) for _ in range(20)}
    assert min(waits) >= told
    assert max(waits) <= told * 1.1
    assert told == 0 or len(waits) > 1
