"""Buckets, quotas and what users' quotas look like."""

import pytest

from maxq.broker.admission.quota import Bucket, Quota, RateLimits, parse_user_quotas


def test_a_bucket_gives_its_rate_over_time_however_it_is_overdrawn() -> None:
    bucket = Bucket(100, 0)
    taken, now_ms = 0, 0
    while now_ms < 10_000:
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        bucket.take(70, now_ms)
        taken += 70
    assert 1000 <= taken <= 1000 + 100 + 70


def test_a_debt_says_how_long_it_lasts() -> None:
    bucket = Bucket(100, 0)
    assert bucket.wait_ms(0) == 0
    bucket.take(600, 0)
    assert bucket.wait_ms(0) == 5001
    assert bucket.wait_ms(5000) == 1
    assert bucket.wait_ms(5001) == 0


def test_idle_time_is_worth_a_second_at_most() -> None:
    bucket = Bucket(100, 0)
    bucket.take(100, 3_600_000)
    assert bucket.wait_ms(3_600_000) > 0


def test_the_remark_names_the_tighter_limit_and_how_long_to_wait() -> None:
    quota = Quota("topic orders", RateLimits(1000, 10), "attribute quota.%s of the topic", 0)
    quota.charge(5, 4000, 0)
    assert quota.remark(0) == (
        "[QUOTA]system busy, start flow control for a while: topic orders is 3000 bytes above its quota, the limit is "
        "1000 bytes a second (attribute quota.bytes of the topic); try again in 3001 ms, or have the quota raised"
    )
    assert (quota.charged_messages, quota.charged_bytes) == (5, 4000)


def test_quotas_of_users() -> None:
    assert parse_user_quotas("alice:bytes=1048576,messages=1000;bob:messages=10;") == {
        "alice": RateLimits(1048576, 1000),
        "bob": RateLimits(0, 10),
    }
    assert parse_user_quotas("") == {}


@pytest.mark.parametrize("text", ["alice", "alice:bytes", "alice:bytes=-1", "alice:bytes=1,bytes=2", ":bytes=1"])
def test_wrong_quotas_of_users_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_user_quotas(text)


def test_attributes_that_are_no_numbers_are_no_quota() -> None:
    assert RateLimits.of_attributes({"quota.bytes": "many", "quota.messages": "7"}) == RateLimits(0, 7)
