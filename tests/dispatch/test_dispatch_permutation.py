"""The order of a pass against a second implementation in plain integers."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.dispatch.permutation import MAX_SAMPLES, TABLE_LIMIT, Permutation, mix64
from flodl_core.dispatch.seeds import SeedFamily, derive_seed
from flodl_core.errors import LocalProtocolError

WORD = 2**64
GOLDEN_RATIO = 0x9E3779B97F4A7C15
ABOVE_TABLE = st.integers(TABLE_LIMIT + 1, MAX_SAMPLES)
SEEDS = st.integers(-(2**63), 2**63)


def plain_seed(run_seed, purpose, *numbers):
    text = b"flodl seed 1" + len(purpose).to_bytes(4, "big") + purpose.encode()
    for number in (run_seed, *numbers):
        text += (number % 2**128).to_bytes(16, "big")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") // 2


def plain_mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % WORD
    return word ^ (word >> 31)


def plain_table(n, seed, pass_index):
    key = plain_seed(seed, "permutation", pass_index)
    return sorted(range(n), key=lambda i: (plain_mix((i * GOLDEN_RATIO + key) % WORD) >> 24, i))


def plain_walk(position, n, seed, pass_index):
    key = plain_seed(seed, "permutation", pass_index)
    bits = 1
    while 4**bits < n:
        bits += 1
    value = position
    while True:
        left, right = value >> bits, value % 2**bits
        for number in range(6):
            round_key = plain_seed(key, "feistel", number)
            mixed = plain_mix((right * GOLDEN_RATIO + round_key) % WORD)
            left, right = right, left ^ (mixed % 2**bits)
        value = (left << bits) + right
        if value < n:
            return value


def test_the_mix_is_the_published_splitmix64():
    steps = [(k * GOLDEN_RATIO) % WORD for k in (1, 2, 3)]
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mix64(np.array(steps, dtype=np.uint64)).tolist() == expected


@given(SEEDS, st.sampled_from(["permutation", "compute", "sample"]), st.integers(0, 9))
def test_a_seed_is_the_first_63_bits_of_a_digest_of_all_arguments(run_seed, purpose, number):
    assert derive_seed(run_seed, purpose, number) == plain_seed(run_seed, purpose, number)
    family = SeedFamily(run_seed, purpose)
    assert [family.seed(n) for n in (number, 0, number)] == [
        plain_seed(run_seed, purpose, n) for n in (number, 0, number)
    ]
    assert 0 <= derive_seed(run_seed, purpose, number) < 2**63


def test_seeds_differ_by_every_argument_and_by_where_a_number_stands():
    drawn = [
        derive_seed(1, "a"),
        derive_seed(2, "a"),
        derive_seed(1, "b"),
        derive_seed(1, "a", 0),
        derive_seed(1, "a", 1),
        derive_seed(1, "a", 0, 1),
        derive_seed(1, "a", 1, 0),
        derive_seed(-1, "a"),
    ]
    assert len(set(drawn)) == len(drawn)


def test_the_order_never_changes_between_versions():
    assert Permutation(10, 1, 0).ids(0, 10).tolist() == [8, 7, 2, 6, 5, 9, 3, 4, 0, 1]
    assert Permutation(2**62, 1, 0).ids(2**62 - 3, 3).tolist() == [
        1457771727456794165,
        1041977231904068950,
        2471165825297862960,
    ]


@settings(max_examples=40)
@given(st.integers(1, 300), SEEDS, st.integers(0, 5))
def test_a_table_holds_each_id_once_in_the_order_of_the_plain_sort(n, seed, pass_index):
    ids = Permutation(n, seed, pass_index).ids(0, n)
    assert ids.dtype == np.int64
    assert ids.tolist() == plain_table(n, seed, pass_index)
    assert sorted(ids.tolist()) == list(range(n))


@settings(max_examples=40)
@given(st.data(), ABOVE_TABLE, SEEDS)
def test_the_bijection_gives_the_plain_value_at_any_position(data, n, seed):
    offset = data.draw(st.integers(0, n - 4))
    found = Permutation(n, seed, 0).ids(offset, 4).tolist()
    assert found == [plain_walk(offset + step, n, seed, 0) for step in range(4)]
    assert len(set(found)) == 4


@pytest.mark.slow
def test_the_bijection_reaches_every_id_once_just_above_the_table():
    n = TABLE_LIMIT + 1
    seen = np.zeros(n, dtype=bool)
    order = Permutation(n, 5, 2)
    for offset in range(0, n, 1 << 20):
        ids = order.ids(offset, min(1 << 20, n - offset))
        assert not seen[ids].any()
        seen[ids] = True
    assert seen.all()


@pytest.mark.slow
def test_the_largest_table_holds_every_id_once():
    ids = Permutation(TABLE_LIMIT, 5, 2).ids(0, TABLE_LIMIT)
    seen = np.zeros(TABLE_LIMIT, dtype=bool)
    seen[ids] = True
    assert seen.all()


@settings(max_examples=30)
@given(st.data(), st.sampled_from([97, TABLE_LIMIT + 17]))
def test_any_slice_equals_the_same_positions_of_a_longer_one(data, n):
    offset = data.draw(st.integers(0, 40))
    size = data.draw(st.integers(0, 40))
    order = Permutation(n, 3, 1)
    assert order.ids(offset, size).tolist() == order.ids(0, 97).tolist()[offset : offset + size]


def test_passes_and_seeds_have_orders_of_their_own():
    orders = [
        tuple(Permutation(50, seed, pass_index).ids(0, 50))
        for seed in (0, 1)
        for pass_index in (0, 1, 2)
    ]
    assert len(set(orders)) == 6


@pytest.mark.parametrize("n", [12, TABLE_LIMIT + 1])
def test_over_many_passes_every_id_comes_first_about_equally_often(n):
    passes = 1200
    firsts = np.array([Permutation(n, 9, number).ids(0, 1)[0] for number in range(passes)])
    counts = np.bincount(firsts * 12 // n, minlength=12)
    expected = passes / 12
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 31.3  # 99.9 % quantile at 11 degrees of freedom


def test_the_callers_may_change_what_they_got():
    order = Permutation(20, 0, 0)
    first = order.ids(0, 20)
    kept = first.copy()
    first[:] = 0
    assert (order.ids(0, 20) == kept).all()


@pytest.mark.parametrize("n", [0, -1, 2**62 + 1])
def test_a_size_out_of_range_is_refused(n):
    with pytest.raises(LocalProtocolError, match=str(n)):
        Permutation(n, 0, 0)


@pytest.mark.parametrize(("offset", "size"), [(-1, 2), (8, 3), (0, -1), (11, 0)])
def test_positions_outside_the_pass_are_refused(offset, size):
    with pytest.raises(LocalProtocolError, match="a pass over 10 samples"):
        Permutation(10, 0, 0).ids(offset, size)
