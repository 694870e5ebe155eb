from maxq.runtime.interfaces import Rng
from maxq.testing.sim_rng import SimRng

PINNED = [484, 676, 875, 890]


def test_one_seed_gives_one_sequence_on_every_python() -> None:
    rng = SimRng(7)
    assert [rng.below(1000) for _ in range(4)] == PINNED
    assert SimRng(8).below(1000) != PINNED[0]


def test_values_stay_in_their_bounds() -> None:
    rng: Rng = SimRng(1)
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}
    assert [len(rng.bytes(count)) for count in (0, 1, 8, 9)] == [0, 1, 8, 9]
    sim = SimRng(1)
    assert {sim.between(4, 6) for _ in range(200)} == {4, 5, 6}
    assert all(1.0 <= sim.uniform(1.0, 2.0) < 2.0 for _ in range(200))
    assert 300 < sum(sim.chance(0.4) for _ in range(1000)) < 500


def test_bytes_are_drawn_as_words_are() -> None:
    words, data = SimRng(5), SimRng(5)
    assert data.bytes(21) == b"".join(words.next64().to_bytes(8, "big") for _ in range(3))[:21]
    assert data.next64() == words.next64()


def test_forks_do_not_move_each_other() -> None:
    parent = SimRng(3)
    before = SimRng(3).fork("disk").next64()
    parent.below(10)
    assert parent.fork("disk").next64() == before
    assert parent.fork("disk").next64() != parent.fork("network").next64()
