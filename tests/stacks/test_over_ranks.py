"""Numbers of several ranks added up by kind are those of all their elements together."""

import numpy as np
import pytest
import torch

from netvitals.capture import Recorder, ReduceOverRanks
from netvitals.capture.reduce_over_ranks import Message, PooledArrays, central_moments, message_of, pooled, raw_moments
from netvitals.capture.tensor_shard import TensorShard, are_copies
from netvitals.watching.ranks import added_up, children

RNG = np.random.default_rng(0)
PARTS = [RNG.normal(3.0, 2.0, n) for n in (5, 8, 2)]
WHOLE = np.concatenate(PARTS)


def moments(x):
    c = x - x.mean()
    return np.array([x.mean(), (c**2).mean(), (c**3).mean(), (c**4).mean()])


KINDS = {
    "sum": (lambda x: x.sum(), ()),
    "mean": (lambda x: x.mean(), ()),
    "max": (lambda x: x.max(), ()),
    "min": (lambda x: x.min(), ()),
    "moments": (moments, ()),
    "norm": (lambda x: np.sqrt((x * x).sum()), ()),
    "variance": (lambda x: x.var(), ("mean",)),
    "scatter": (lambda x: np.sqrt(((x - x.mean()) ** 2).sum()), ("mean",)),
}


def total(each):
    return sum((message_of(entries, rank) for rank, entries in enumerate(each[1:], 1)), start=message_of(each[0], 0))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_that_of_all_elements(kind):
    of, before = KINDS[kind]
    functions = [*(KINDS[k][0] for k in before), of]
    each = [
        [PooledArrays("v", [np.asarray(f(x)) for f in functions], ReduceOverRanks((*before, kind), len(x)))]
        for x in PARTS
    ]
    ((arrays, growth),) = pooled(each[0], Message.from_bytes(total(each).to_bytes()))
    assert arrays[-1] == pytest.approx(of(WHOLE), rel=1e-12)
    assert growth == (len(WHOLE) / len(PARTS[0]), 1)


def test_pieces_that_several_ranks_hold_are_counted_once():
    norms = np.array([3.0, 4.0])
    shares = np.array([1.0, 0.5])  # the second tensor is the same on both ranks
    each = [
        [PooledArrays("v", [norms, norms[:, None]], ReduceOverRanks(("norm", "sum"), pieces=True, shares=shares))]
        for _ in range(2)
    ]
    ((arrays, _),) = pooled(each[0], total(each))
    assert arrays[0] == pytest.approx([np.sqrt(18), 4.0])
    assert arrays[1][:, 0].tolist() == [6.0, 4.0]


def test_the_winner_is_a_place_on_the_rank_with_the_largest():
    each = [
        [PooledArrays("v", [np.array([r, 5.0 - r]), np.array(10 + r)], ReduceOverRanks(("max", "winner")))]
        for r in (0, 7, 3)
    ]
    ((arrays, _),) = pooled(each[0], total(each))
    assert arrays[0].tolist() == [7.0, 5.0] and arrays[1].tolist() == [17.0, 1.0]


def test_what_stays_alone_or_the_same_is_untouched_and_other_layouts_are_refused():
    entry = PooledArrays("v", [np.array([1.0]), np.array([2.0])], ReduceOverRanks(("same", "alone")))
    ((arrays, _),) = pooled([entry], total([[entry], [entry._replace(arrays=[np.array([9.0])] * 2)]]))
    assert [a.item() for a in arrays] == [1.0, 2.0]
    with pytest.raises(ValueError, match="different places"):
        message_of([entry], 0) + message_of([entry._replace(vital="w")], 1)


def test_moments_there_and_back():
    x = moments(WHOLE)
    assert raw_moments(x) == pytest.approx([(WHOLE**k).mean() for k in (1, 2, 3, 4)])
    assert central_moments(raw_moments(x)) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("world", [1, 2, 3, 8, 13])
def test_the_tree_hears_every_rank_once(world):
    box = {}

    class Box:
        def __init__(self, rank):
            self.rank = rank

        def send(self, to, given):
            box[self.rank, to] = given

        def receive(self, sender):
            return box.pop((sender, self.rank))

    for rank in reversed(range(world)):  # who hands on is higher than who takes
        found = added_up(
            message_of([PooledArrays("v", [np.ones(1)], ReduceOverRanks(("sum",)))], rank), rank, world, Box(rank)
        )
        assert (found is None) is (rank != 0)
    assert found.sums.tolist() == [world, world] and sorted(found.ranks) == list(range(world)) and not box
    assert len(children(0, world)) == (world - 1).bit_length()


def test_a_recorder_says_what_stays_that_of_the_first_rank():
    first, second = Recorder(0), Recorder(0)
    for recorder, value in ((first, 1.0), (second, 3.0)):
        recorder.vital = "heat"
        recorder.write("a", ("mean",), torch.tensor([value]), ReduceOverRanks(("mean",)))
        recorder.write("b", ("rank",), torch.tensor([value]))
        recorder.same = True
        recorder.write("c", ("fixed",), torch.tensor([value]))
        recorder.same = False
        recorder.leave_device()
    first.take(first.message(0) + second.message(1))
    assert {r.site: r.value for r in first.measurements()[0]} == {"a": 2.0, "b": 1.0, "c": 1.0}
    assert list(first.skipped) == ["heat (other ranks)"]


def test_without_the_other_ranks_a_piece_is_no_number():
    recorder = Recorder(0)
    recorder.write("w", ("norm",), torch.ones(1), ReduceOverRanks(("norm",), pieces=True, shares=np.ones(1)))
    recorder.write("x", ("mean",), torch.ones(1), ReduceOverRanks(("mean",)))
    recorder.leave_device()
    recorder.take(None)
    assert [r.site for r in recorder.measurements()[0]] == ["x"]


def test_an_array_that_two_vital_signs_ask_for_goes_once():
    def entries(x):
        mean, spread = np.array([x.mean()]), np.array([x.var()])
        return [
            PooledArrays("a", [mean], ReduceOverRanks(("mean",), len(x))),
            PooledArrays("b", [mean, spread], ReduceOverRanks(("mean", "variance"), len(x))),
            PooledArrays("c", [mean], ReduceOverRanks(("sum",), len(x))),
        ]

    each = [entries(x) for x in PARTS]
    found = pooled(each[0], total(each))
    assert len(total(each).sums) == 3 + 1 + 1 + 1  # three weights, a mean, a variance, a sum
    assert found[0][0][0] == pytest.approx([WHOLE.mean()])
    assert [a.item() for a in found[1][0]] == pytest.approx([WHOLE.mean(), WHOLE.var()])
    assert found[2][0][0] == pytest.approx([sum(x.mean() for x in PARTS)])


def cut_entry(place, channels, kinds=("mean", "variance", "max", "winner", "sum"), weight=12.0):
    """Numbers of a rank that sees these channels (rows × channels) of a layer cut over two ranks."""
    numbers = [channels.mean(0), channels.var(0), np.abs(channels).max(0), np.array(float(place)), channels.sum()]
    return [
        PooledArrays(
            "v", numbers[: len(kinds)], ReduceOverRanks(kinds, weight, part=TensorShard(place, 2, channels.shape[1]))
        )
    ]


def exchanged(*entries):
    messages = [message_of(e, rank=r) for r, e in enumerate(entries)]
    total = messages[0]
    for one in messages[1:]:
        total = total + one
    return pooled(entries[0], total)


def test_channels_of_a_cut_layer_stand_side_by_side():
    whole = np.random.default_rng(0).normal(size=(4, 6))
    ((arrays, growth),) = exchanged(cut_entry(0, whole[:, :3]), cut_entry(1, whole[:, 3:]))
    mean, variance, largest, winner, total = arrays
    assert mean == pytest.approx(whole.mean(0)) and variance == pytest.approx(whole.var(0))
    assert largest == pytest.approx(np.abs(whole).max(0)) and total == pytest.approx(whole.sum())
    assert winner[0] == (0 if np.abs(whole[:, :3]).max() > np.abs(whole[:, 3:]).max() else 1)
    assert growth == (2, 2)


def test_what_all_ranks_of_a_group_compute_alike_counts_once():
    whole = np.random.default_rng(1).normal(size=(4, 3))
    ((arrays, growth),) = exchanged(cut_entry(0, whole), cut_entry(1, whole))
    assert arrays[0] == pytest.approx(whole.mean(0)) and arrays[4] == pytest.approx(whole.sum())
    assert growth == (1, 1)


def test_examples_of_other_ranks_and_channels_of_other_places_are_both_taken_in():
    whole = np.random.default_rng(2).normal(size=(8, 6))
    quarters = [whole[i : i + 4, j : j + 3] for i in (0, 4) for j in (0, 3)]
    entries = [cut_entry(n % 2, q, kinds=("mean", "variance")) for n, q in enumerate(quarters)]
    ((arrays, growth),) = exchanged(*entries)
    assert arrays[0] == pytest.approx(whole.mean(0)) and arrays[1] == pytest.approx(whole.var(0))
    assert growth == (4, 2)


def test_numbers_that_are_not_by_channel_are_pooled_over_a_cut_layer():
    whole, kinds = np.random.default_rng(3).normal(size=(5, 6)), ("mean", "variance", "min")
    entries = [
        [
            PooledArrays(
                "v",
                [h.mean(), h.var(), np.array([h.min()])],
                ReduceOverRanks(kinds, 15.0, part=TensorShard(i, 2, 3)),
            )
        ]
        for i, h in enumerate((whole[:, :3], whole[:, 3:]))
    ]
    ((arrays, _),) = exchanged(*entries)
    assert arrays[0] == pytest.approx(whole.mean()) and arrays[1] == pytest.approx(whole.var())
    assert arrays[2] == pytest.approx(whole.min())


def test_positions_that_are_cut_are_told_from_channels_by_the_rows_of_other_sites():
    whole = np.random.default_rng(4).normal(size=(8, 3))
    entries = [
        [
            PooledArrays(
                "v", [half.mean(0), half.var(0)], ReduceOverRanks(("mean", "variance"), 12.0, part=TensorShard(i, 2, 3))
            ),
            PooledArrays("w", [whole.mean(0)], ReduceOverRanks(("mean",), 24.0, part=TensorShard(i, 2, 3))),
        ]
        for i, half in enumerate((whole[:4], whole[4:]))
    ]
    (arrays, growth), (other, alike) = exchanged(*entries)
    assert arrays[0] == pytest.approx(whole.mean(0)) and arrays[1] == pytest.approx(whole.var(0)) and growth == (2, 1)
    assert other[0] == pytest.approx(whole.mean(0)) and alike == (1, 1)


@pytest.mark.parametrize("winner", [0, 1])
def test_the_place_of_the_largest_comes_from_the_part_that_holds_it(winner):
    halves = [np.ones((4, 3)), 2 * np.ones((4, 3))]
    halves[winner][2, 1] = 9.0
    entries = [
        [
            PooledArrays(
                "v", [h.max(0), np.array(10.0 + i)], ReduceOverRanks(("max", "winner"), 12.0, part=TensorShard(i, 2, 3))
            )
        ]
        for i, h in enumerate(halves)
    ]
    ((arrays, _),) = exchanged(*entries)
    assert arrays[1].tolist() == [10.0 + winner, winner]


def test_copies_may_differ_by_rounding_and_by_nothing_more():
    assert are_copies([[np.array([1.0, 1e-9])], [np.array([1.0 + 5e-7, 0.0])]])
    assert not are_copies([[np.array([1.0])], [np.array([1.0 + 1e-5])]])
    assert not are_copies([[np.array([1e-4])], [np.array([3e-4])]])
