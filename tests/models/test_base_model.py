"""The base model: its state knows no goal, steps and sequences agree, rows don't touch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from langgoalirl.language.vocabulary import END, PAD
from langgoalirl.models.base_model import DIRECTION, BaseModel, FeatureMask, StateEncoder
from langgoalirl.models.layers import use_generator
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.types import STOP, Observation

torch.set_num_threads(1)

B, T, V, K, D = 3, 5, 6, 4, 7
PLAIN = Sizes(hidden=8, word=6, angle=3, latent=4, dropout=0.0, feature_dropout=0.0)
WORDS = torch.tensor([[5, 6, 7, 8, END], [9, 4, END, PAD, PAD], [8, 8, 7, END, PAD]])


def observed(seed: int = 0) -> Observation:
    """Made-up trajectories [B, T, …]; *stop* and absent candidates are zeros."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(B, T, K, generator=draw) < 0.6
    mask[..., STOP] = True
    there = mask.clone()
    there[..., STOP] = False
    actions = torch.randn(B, T, K, D, generator=draw) * there[..., None]
    views = torch.randn(B, T, V, D, generator=draw)
    return Observation(views, actions, mask, torch.randn(B, T, DIRECTION, generator=draw))


def at(seen: Observation, t: int) -> Observation:
    return Observation(*(part[:, t] for part in seen))


def base_model(sizes: Sizes = PLAIN) -> BaseModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return BaseModel(D, 10, sizes).eval()


def act_along(model: BaseModel, words: Tensor, seen: Observation) -> tuple[Tensor, Tensor]:
    """Logits [B, T, K] and states [B, T, hidden], one step at a time."""
    memory, logits, states = model.begin(words), [], []
    for t in range(seen.views.shape[1]):
        step, memory = model.act(at(seen, t), memory)
        assert memory[1] is not None
        logits.append(step)
        states.append(memory[1][0])
    return torch.stack(logits, dim=1), torch.stack(states, dim=1)


def test_the_state_is_blind_to_the_goal() -> None:
    model, seen = base_model(), observed()
    logits, states = act_along(model, WORDS, seen)
    other_logits, other_states = act_along(model, WORDS.roll(1, 0), seen)
    assert torch.equal(states, other_states)
    assert not torch.allclose(logits[..., 1:], other_logits[..., 1:])


def test_the_state_starts_at_zero() -> None:
    """No state looks at all views alike, so that the first f is their mean."""
    encoder, seen = base_model().state, observed()
    first = encoder.sequence(seen.views, seen.facing)[:, 0]
    zero = torch.zeros(B, PLAIN.hidden)
    heading = torch.tanh(encoder.angle(seen.facing[:, 0]))
    mean = seen.views[:, 0].mean(1)
    wanted, _ = encoder.cell(torch.cat([mean, heading], dim=-1), (zero, zero))
    torch.testing.assert_close(first, wanted)


def test_a_step_of_the_state_encoder_by_hand() -> None:
    encoder, seen = base_model().state, observed()
    h = torch.randn(B, PLAIN.hidden, generator=torch.Generator().manual_seed(4))
    query = h @ encoder.view_query.weight.T
    alpha = torch.softmax(torch.einsum("bd,bvd->bv", query, seen.views[:, 0]), dim=-1)
    looked = torch.einsum("bv,bvd->bd", alpha, seen.views[:, 0])
    heading = torch.tanh(encoder.angle(seen.facing[:, 0]))
    wanted, _ = encoder.cell(torch.cat([looked, heading], dim=-1), (h, 2 * h))
    found, _ = encoder(seen.views[:, 0], seen.facing[:, 0], (h, 2 * h))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_a_sequence_is_its_steps(masked: bool) -> None:
    encoder, seen = base_model().state, observed()
    mask = torch.arange(B * D).view(B, D) % 3 if masked else None
    state = encoder.start(seen.views)
    steps = []
    for t in range(T):
        state = encoder(seen.views[:, t], seen.facing[:, t], state, mask)
        steps.append(state[0])
    assert torch.equal(encoder.sequence(seen.views, seen.facing, mask), torch.stack(steps, dim=1))


def test_acting_along_a_path_gives_the_forward_logits() -> None:
    model, seen = base_model(), observed()
    torch.testing.assert_close(act_along(model, WORDS, seen)[0], model(WORDS, seen))


def test_the_last_layers_by_hand() -> None:
    """g by attention over words that are no padding; then a bilinear form with each candidate."""
    model, seen = base_model(), observed()
    state = model.state.sequence(seen.views, seen.facing)[1, 2]  # of the row with three words
    encoded = model.read(WORDS)[0][1, :3]
    alpha = torch.softmax(encoded @ (model.word_query.weight @ state), dim=0)
    joined = torch.tanh(model.join(torch.cat([state, alpha @ encoded])))
    wanted = seen.actions[1, 2] @ (model.bilinear.weight @ joined)
    torch.testing.assert_close(model(WORDS, seen)[1, 2], wanted)


@pytest.mark.parametrize("training", [False, True])
def test_stop_has_the_logit_zero(training: bool) -> None:
    model = base_model(Sizes(hidden=8, word=6, angle=3, latent=4)).train(training)
    use_generator(model, torch.Generator().manual_seed(0))
    logits = model(WORDS, observed())
    assert torch.equal(logits[..., STOP], torch.zeros(B, T))
    assert bool((logits[..., 1:][observed().mask[..., 1:]] != 0).all())


def test_rows_do_not_touch_each_other_and_padding_is_ignored() -> None:
    model, seen = base_model(), observed()
    padded = torch.cat([WORDS, torch.full((B, 4), PAD)], dim=1)
    together = model(padded, seen)
    for row, (steps, words) in enumerate([(5, 5), (2, 3), (1, 4)]):
        part = Observation(*(x[row : row + 1, :steps] for x in seen))
        alone = model(WORDS[row : row + 1, :words], part)
        torch.testing.assert_close(together[row, :steps], alone[0])


def test_everything_learns_from_the_logits() -> None:
    model = base_model()
    model(WORDS, observed()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert bool((parameter.grad != 0).any()), name


def test_the_feature_mask_never_hides_a_direction() -> None:
    layer = FeatureMask(40, 0.5)
    use_generator(layer, torch.Generator().manual_seed(5))
    mask = layer(torch.zeros(30, 2, 3))
    assert torch.equal(mask[:, -DIRECTION:], torch.ones(30, DIRECTION))
    assert set(mask[:, :-DIRECTION].flatten().tolist()) == {0.0, 2.0}
    assert len({tuple(row) for row in mask.tolist()}) == 30
    assert torch.equal(layer.eval()(torch.zeros(30, 2)), torch.ones(30, 40))


def hidden_features(seen: Observation, mask: Tensor) -> Observation:
    """The same trajectories in houses that lack what the mask [B, D] hides."""
    wide = mask[:, None, None]
    return Observation(seen.views * wide, seen.actions * wide, seen.mask, seen.facing)


def test_factors_equal_masking_the_views_themselves() -> None:
    model, seen = base_model(), observed()
    mask = torch.rand(B, D, generator=torch.Generator().manual_seed(6)).round() * 2
    masked = hidden_features(seen, mask)
    states = model.state.sequence(masked.views, masked.facing)
    torch.testing.assert_close(model.state.sequence(seen.views, seen.facing, mask), states)
    goal = model.read(WORDS)
    torch.testing.assert_close(
        model.scores(states, goal, seen.actions, mask), model.scores(states, goal, masked.actions)
    )


def test_training_hides_the_same_features_from_a_whole_trajectory() -> None:
    model = base_model(Sizes(hidden=8, word=6, angle=3, dropout=0.0, feature_dropout=0.5))
    seen, generator = observed(), torch.Generator()
    use_generator(model.train(), generator)
    generator.manual_seed(7)
    mask = model.mask(seen.views)
    assert bool((mask == 0).any())
    generator.manual_seed(7)
    trained = model(WORDS, seen)
    torch.testing.assert_close(trained, model.eval()(WORDS, hidden_features(seen, mask)))


def test_the_encoder_starts_in_the_precision_of_the_views() -> None:
    start = StateEncoder(D, PLAIN).start(torch.zeros(2, V, D, dtype=torch.bfloat16))
    assert [part.dtype for part in start] == [torch.bfloat16] * 2
    assert [tuple(part.shape) for part in start] == [(2, PLAIN.hidden)] * 2
