"""A cache that keeps what was used last, as much as fits."""

from app.bounded_cache import BoundedCache


def test_the_least_recently_used_go_first() -> None:
    cache: BoundedCache[str] = BoundedCache(3)
    for key in "abc":
        cache.put(key, key.upper(), 1)
    assert cache.get("a") == "A"
    cache.put("d", "D", 2)
    assert [cache.get(key) for key in "abcd"] == ["A", None, None, "D"]


def test_a_value_that_is_too_large_is_not_kept_and_one_that_is_replaced_counts_once() -> None:
    cache: BoundedCache[str] = BoundedCache(3)
    cache.put("a", "large", 4)
    assert cache.get("a") is None
    for text in ("one", "two"):
        cache.put("b", text, 2)
    cache.put("c", "C", 1)
    assert (cache.get("b"), cache.get("c")) == ("two", "C")


def test_a_value_is_made_once() -> None:
    made: list[int] = []
    cache: BoundedCache[list[int]] = BoundedCache(10)
    for _ in range(2):
        assert cache.get_or_make("a", lambda: made.append(1) or [7], len) == [7]
    assert made == [1]
