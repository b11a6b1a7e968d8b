"""The small layers: values worked out by hand, and torch's own layers as the yardstick."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from langgoalirl.models.layers import (
    MLP,
    BiLSTM,
    Dropout,
    attend,
    masked_log_softmax,
    reverse,
    use_generator,
)

torch.set_num_threads(1)

# Under the query (ln 2, 0) these have the scores ln 2, 0 and 2 ln 2.
QUERY = torch.tensor([[math.log(2), 0.0]])
KEYS = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]])


def draws(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_attention_by_hand() -> None:
    attended, weight = attend(QUERY, KEYS)
    torch.testing.assert_close(weight, torch.tensor([[2 / 7, 1 / 7, 4 / 7]]))
    torch.testing.assert_close(attended, torch.tensor([[10 / 7, 1 / 7]]))


def test_attention_under_a_mask_by_hand() -> None:
    attended, weight = attend(QUERY, KEYS, torch.tensor([[True, False, True]]))
    torch.testing.assert_close(weight, torch.tensor([[1 / 3, 0.0, 2 / 3]]))
    torch.testing.assert_close(attended, torch.tensor([[5 / 3, 0.0]]))


masks = st.lists(
    st.lists(st.booleans(), min_size=5, max_size=5).filter(any), min_size=1, max_size=4
)


@settings(deadline=None, max_examples=30)
@given(masks, st.integers(0, 1000))
def test_what_is_masked_weighs_nothing(rows: list[list[bool]], seed: int) -> None:
    mask = torch.tensor(rows)
    query, keys = 5 * draws(seed, len(rows), 3), draws(seed + 1, len(rows), 5, 3)
    attended, weight = attend(query, keys, mask)
    torch.testing.assert_close(weight.sum(-1), torch.ones(len(rows)))
    assert torch.equal(weight[~mask], torch.zeros(int((~mask).sum())))
    assert bool((weight[mask] > 0).all())
    other = torch.where(mask[..., None], keys, 100.0)
    assert torch.equal(attend(query, other, mask)[0], attended)


def test_attention_keeps_the_keys_precision() -> None:
    attended, weight = attend(QUERY.bfloat16(), KEYS.bfloat16())
    assert attended.dtype == weight.dtype == torch.bfloat16


def test_log_softmax_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3), 7.0]])
    found = masked_log_softmax(logits, torch.tensor([[True, True, False]]))
    wanted = torch.tensor([[math.log(1 / 4), math.log(3 / 4), -math.inf]])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("more", [1, 5, 40])
def test_more_absent_candidates_change_nothing(more: int) -> None:
    logits, mask = draws(1, 6, 4), torch.tensor([[True, True, True, False]] * 6)
    wide = torch.cat([logits, 50 + draws(2, 6, more)], dim=1)
    absent = torch.zeros(6, more, dtype=torch.bool)
    found = masked_log_softmax(wide, torch.cat([mask, absent], dim=1))
    torch.testing.assert_close(found[:, :4], masked_log_softmax(logits, mask), rtol=0, atol=1e-6)
    assert bool((found[:, 3:] == -torch.inf).all())


def test_gradients_through_masks_are_finite() -> None:
    mask = torch.tensor([[True, False, True, False], [True, False, False, False]])
    logits = draws(3, 2, 4).requires_grad_()
    masked_log_softmax(logits, mask)[:, 0].sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert torch.equal(logits.grad[~mask], torch.zeros(5))
    assert logits.grad[0, 0] != 0

    query, keys = draws(4, 2, 3).requires_grad_(), draws(5, 2, 4, 3).requires_grad_()
    attend(query, keys, mask)[0].square().sum().backward()
    assert query.grad is not None
    assert keys.grad is not None
    assert bool(query.grad.isfinite().all())
    assert torch.equal(keys.grad[~mask], torch.zeros(5, 3))
    assert bool(keys.grad[mask].isfinite().all())


def test_reverse_by_hand() -> None:
    x = torch.tensor([[1, 2, 3, 4], [1, 2, 8, 9], [1, 7, 8, 9]])[..., None]
    turned = reverse(x, torch.tensor([4, 2, 1]))[..., 0]
    assert turned.tolist() == [[4, 3, 2, 1], [2, 1, 8, 9], [1, 7, 8, 9]]


def seeded_bilstm(wide: int, hidden: int) -> BiLSTM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BiLSTM(wide, hidden)


LENGTHS = torch.tensor([5, 1, 3, 4])


def test_bilstm_is_torchs_bidirectional_lstm() -> None:
    ours = seeded_bilstm(3, 4)
    theirs = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    weights = {name: value.clone() for name, value in ours.forwards.state_dict().items()}
    for name, value in ours.backwards.state_dict().items():
        weights[f"{name}_reverse"] = value.clone()
    theirs.load_state_dict(weights)

    x = draws(6, 4, 5, 3)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    wanted, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    real = torch.arange(5) < LENGTHS[:, None]
    torch.testing.assert_close(ours(x, LENGTHS)[real], wanted[real])


def test_bilstm_hears_neither_padding_nor_neighbours() -> None:
    model, x = seeded_bilstm(3, 4), draws(7, 4, 5, 3)
    together = model(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(x[row : row + 1, :length], torch.tensor([length]))[0]
        torch.testing.assert_close(together[row, :length], alone)


def test_dropout_repeats_with_its_generator() -> None:
    layer, x = Dropout(0.5), torch.ones(64)
    use_generator(layer, torch.Generator().manual_seed(1))
    first, second = layer(x), layer(x)
    use_generator(layer, torch.Generator().manual_seed(1))
    assert torch.equal(layer(x), first)
    assert torch.equal(layer(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_dropout_keeps_the_expectation(rate: float) -> None:
    layer, count = Dropout(rate), 40_000
    use_generator(layer, torch.Generator().manual_seed(2))
    dropped = layer(torch.ones(8 * count)).view(count, 8)
    kept = dropped != 0
    scale = dropped.max().item()
    assert torch.equal(dropped, kept * scale)
    assert scale == pytest.approx(1 / (1 - rate), rel=0.005)  # rates are rounded to 256ths
    # Five standard deviations; in each of eight places, because eight share a random number.
    slack = 5 * math.sqrt(rate / (1 - rate) / count)
    torch.testing.assert_close(dropped.mean(0), torch.ones(8), rtol=0, atol=slack)
    together = (kept[:, :-1] & kept[:, 1:]).double().mean(0)
    torch.testing.assert_close(together, torch.full((7,), scale**-2).double(), rtol=0, atol=0.0125)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (8,), (3, 3, 3)])
def test_dropout_of_any_shape_and_precision(shape: tuple[int, ...]) -> None:
    layer = Dropout(0.5)
    use_generator(layer, torch.Generator().manual_seed(3))
    for dtype in (torch.float32, torch.bfloat16):
        dropped = layer(torch.ones(shape, dtype=dtype))
        assert dropped.shape == shape
        assert dropped.dtype == dtype
        assert set(dropped.flatten().tolist()) <= {0.0, 2.0}


def test_dropout_is_off_outside_training_and_at_rate_zero() -> None:
    x = draws(8, 10)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_dropout_refuses_to_train_without_a_generator() -> None:
    with pytest.raises(RuntimeError, match="use_generator"):
        Dropout(0.5)(torch.ones(3))


def test_every_dropout_of_a_model_gets_the_generator() -> None:
    generator = torch.Generator()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Dropout(0.5)), MLP(2, 2, 2, 3, 0.5))
    use_generator(model, generator)
    found = [m.generator for m in model.modules() if isinstance(m, Dropout)]
    assert len(found) == 3
    assert all(one is generator for one in found)


def test_mlp_by_hand() -> None:
    model = MLP(2, 3, 1, layers=2, dropout=0.5).eval()
    weights = [
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        torch.tensor([0.0, 0.0, -10.0]),
        torch.tensor([[2.0, 3.0, 5.0]]),
        torch.tensor([1.0]),
    ]
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    # ReLU: (4, 0, 0) and (4, 7, 1).
    assert model(torch.tensor([[4.0, -7.0], [4.0, 7.0]])).tolist() == [[9.0], [35.0]]


def test_an_mlp_of_one_layer_is_linear() -> None:
    assert [tuple(p.shape) for p in MLP(2, 9, 4, layers=1, dropout=0.5).parameters()] == [
        (4, 2),
        (4,),
    ]
