import pytest
from kdist.finders.search_largest import search_largest


@pytest.mark.parametrize("limit", [1, 2, 3, 15, 16, 17, 100, 1000, 4095])
@pytest.mark.parametrize("start", [1, 16, 700])
def test_within_a_twentieth_and_each_number_once(limit, start):
    tried = []

    def works(number):
        tried.append(number)
        return number <= limit

    found = search_largest(works, start=start, most=5000)
    assert limit / 1.05 - 1 < found <= limit
    assert len(set(tried)) == len(tried)
    assert found in tried


def test_doubles_then_halves():
    tried = []
    search_largest(lambda number: tried.append(number) or number <= 100, start=16, most=1000)
    assert tried == [16, 32, 64, 128, 96, 112, 104, 100]


def test_the_largest_of_all_works():
    tried = []
    assert search_largest(lambda number: tried.append(number) or True, start=16, most=50) == 50
    assert tried == [16, 32, 50]
    assert search_largest(lambda _: True, start=99, most=50) == 50


def test_nothing_works():
    tried = []
    assert search_largest(lambda number: tried.append(number), start=8, most=50) is None
    assert tried == [8, 4, 2, 1]
