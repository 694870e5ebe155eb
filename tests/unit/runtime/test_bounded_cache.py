from maxq.runtime.bounded_cache import BoundedCache, text_size


def test_of_many_entries_the_bound_is_kept_and_the_newest_is_there() -> None:
    kept: BoundedCache[tuple[str, str], int] = BoundedCache(10, 1000, text_size)
    for number in range(1000):
        kept.keep(("topic", str(number)), number)
        assert len(kept) <= 10
        assert kept.get(("topic", str(number))) == number


def test_keys_of_much_text_are_bounded_in_sum() -> None:
    kept: BoundedCache[tuple[str, str], int] = BoundedCache(1000, 10_000, text_size)
    for number in range(100):
        kept.keep(("t" * 900, f"{number:100}"), number)
        assert kept.size == sum(map(text_size, kept)) <= 10_000


def test_what_is_replaced_or_forgotten_counts_no_more() -> None:
    kept: BoundedCache[tuple[str], int] = BoundedCache(10, 100, text_size)
    for _ in range(100):
        kept.keep(("a" * 60,), 1)
    kept.keep(("b" * 40,), 2)
    assert len(kept) == 2
    kept.forget(lambda key, value: value == 1)
    assert (list(kept), kept.size) == ([("b" * 40,)], 40)
    kept.clear()
    assert (len(kept), kept.size) == (0, 0)
