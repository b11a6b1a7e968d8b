"""The goal generator: distributions in closed form, words one by one, and a world to describe."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from langgoalirl.language.vocabulary import BEGIN, END, PAD, UNKNOWN, Vocabulary
from langgoalirl.models.base_model import DIRECTION
from langgoalirl.models.goal_generator import (
    Encoded,
    Gaussian,
    GoalGenerator,
    Walk,
    element_wise_max,
    kl_divergence,
    pick,
    shift,
)
from langgoalirl.models.layers import use_generator
from langgoalirl.models.sizes import Sizes
from langgoalirl.worlds.navgraph import House, NavGraph
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation

torch.set_num_threads(1)

B, T, V, K, D = 4, 5, 6, 3, 7
WORD_COUNT, LIMIT = 12, 5
SIZES = Sizes(hidden=16, word=6, latent=4, dropout=0.0, feature_dropout=0.0)
LENGTHS = torch.tensor([5, 2, 1, 4])
WORDS = torch.tensor(
    [[5, 6, 7, 8, END], [9, 4, END, PAD, PAD], [END, PAD, PAD, PAD, PAD], [8, 8, 7, END, PAD]]
)


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made_up_walk() -> Walk:
    generator = draw()
    actions = torch.randint(0, K, (B, T), generator=generator)
    actions[torch.arange(T) == LENGTHS[:, None] - 1] = STOP
    actions[torch.arange(T) >= LENGTHS[:, None]] = NO_ACTION
    candidates = torch.randn(B, T, K, D, generator=generator)
    candidates[:, :, STOP] = 0
    views = torch.randn(B, T, V, D, generator=generator)
    facing = torch.randn(B, T, DIRECTION, generator=generator)
    seen = Observation(views, candidates, torch.ones(B, T, K, dtype=torch.bool), facing)
    return Walk(seen, actions, LENGTHS)


def goal_generator(wide: int = D, words: int = WORD_COUNT, sizes: Sizes = SIZES) -> GoalGenerator:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return GoalGenerator(wide, words, sizes).eval()


def row_of(walk: Walk, row: int) -> Walk:
    """One trajectory alone, without its padding."""
    steps = int(walk.lengths[row])
    seen = Observation(*(part[row : row + 1, :steps] for part in walk.seen))
    return Walk(seen, walk.actions[row : row + 1, :steps], walk.lengths[row : row + 1])


# Distributions


def one(mean: float, variance: float) -> Gaussian:
    return Gaussian(torch.tensor([[mean]]), torch.tensor([[variance]]))


def test_kl_by_hand() -> None:
    """½ (σ²q/σ²p + (μq - μp)²/σ²p - 1 - ln σ²q/σ²p)."""
    wide = kl_divergence(one(1, 4), one(0, 1)).item()
    assert wide == pytest.approx(0.5 * (4 + 1 - 1 - math.log(4)))
    narrow = kl_divergence(one(1, 0.5), one(3, 2)).item()
    assert narrow == pytest.approx(0.5 * (0.25 + 2 - 1 + math.log(4)))
    assert kl_divergence(one(-2, 3), one(-2, 3)).item() == 0
    both = Gaussian(torch.tensor([[1.0, 1.0]]), torch.tensor([[4.0, 0.5]]))
    other = Gaussian(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 2.0]]))
    assert kl_divergence(both, other).tolist() == [pytest.approx(wide + narrow)]


def test_kl_and_samples_agree_with_monte_carlo() -> None:
    count = 100_000
    q = Gaussian(torch.tensor([0.5, -1.0]), torch.tensor([0.3, 2.0]))
    p = Gaussian(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.8]))
    z = Gaussian(*(part.expand(count, 2) for part in q)).sample(draw())
    torch.testing.assert_close(z.mean(0), q.mean, rtol=0, atol=0.025)
    torch.testing.assert_close(z.var(0), q.variance, rtol=0.025, atol=0)
    log_q, log_p = (
        torch.distributions.Normal(d.mean, d.variance.sqrt()).log_prob(z) for d in (q, p)
    )
    surprise = (log_q - log_p).sum(-1)
    slack = 5 * surprise.std().item() / math.sqrt(count)
    assert kl_divergence(q, p).item() == pytest.approx(surprise.mean().item(), abs=slack)


def test_element_wise_max_sees_no_padding() -> None:
    states = torch.tensor([[[-1.0, -5.0], [-2.0, -3.0], [9.0, 9.0]]])
    found = element_wise_max(states, torch.tensor([[True, True, False]]))
    assert found.tolist() == [[-1.0, -3.0]]


# Trajectories


def test_the_encoding_depends_neither_on_padding_nor_on_other_rows() -> None:
    model, walk = goal_generator(), made_up_walk()
    together = model.encode(walk)
    for row in range(B):
        alone, steps = model.encode(row_of(walk, row)), int(LENGTHS[row])
        assert together.is_step[row].tolist() == [t < steps for t in range(T)]
        torch.testing.assert_close(together.steps[row, :steps], alone.steps[0])
        torch.testing.assert_close(together.whole[row], alone.whole[0])


def test_every_step_counts() -> None:
    """What is chosen, and what is seen, at any step changes the encoding of its own trajectory."""
    model, walk = goal_generator(), made_up_walk()
    before = model.encode(walk).whole
    for t in range(int(LENGTHS[0])):
        views = walk.seen.views.clone()
        views[0, t] += 1
        other = model.encode(walk._replace(seen=walk.seen._replace(views=views))).whole != before
        assert other.any(1).tolist() == [True, False, False, False]
        actions = walk.actions.clone()
        actions[0, t] = (actions[0, t] + 1) % K
        other = model.encode(walk._replace(actions=actions)).whole != before
        assert other.any(1).tolist() == [True, False, False, False]


def test_the_encoding_by_hand() -> None:
    """h^a_{t-1} looks at step t; before the first step it is zero, and all views weigh alike."""
    model, walk = goal_generator(), row_of(made_up_walk(), 0)
    chosen = torch.stack([walk.seen.actions[0, t, a] for t, a in enumerate(walk.actions[0])])
    acted = model.act_encoder(chosen[None], walk.lengths)[0]
    looked = [walk.seen.views[0, 0].mean(0)]
    for t in range(1, T):
        views = walk.seen.views[0, t]
        alpha = torch.softmax(views @ (model.view_query.weight @ acted[t - 1]), dim=0)
        looked.append(alpha @ views)
    joined = torch.cat([torch.stack(looked), acted], dim=-1)
    steps = model.path_encoder(joined[None], walk.lengths)
    found = model.encode(walk)
    torch.testing.assert_close(found.steps, steps)
    torch.testing.assert_close(found.whole, steps.amax(1))


def test_training_hides_the_same_features_from_a_whole_trajectory() -> None:
    model, walk = goal_generator(sizes=Sizes(16, 2, 6, 3, 4, 0.0, 0.5)), made_up_walk()
    generator = draw()
    use_generator(model.train(), generator)
    mask = model.mask(walk.seen.views)[:, None, None]
    assert bool((mask == 0).any())
    hidden = walk.seen._replace(views=walk.seen.views * mask, actions=walk.seen.actions * mask)
    generator.manual_seed(0)
    trained = model.encode(walk)
    torch.testing.assert_close(trained.whole, model.eval().encode(Walk(hidden, *walk[1:])).whole)


def test_repeating_keeps_the_samples_of_a_trajectory_together() -> None:
    parts = torch.arange(6.0).view(2, 3, 1), torch.ones(2, 3, dtype=torch.bool), torch.eye(2)
    repeated = Encoded(*parts).repeat(2)
    assert repeated.whole.tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert repeated.steps[:, 0, 0].tolist() == [0, 0, 3, 3]


# Words


def step_by_step(model: GoalGenerator, encoded: Encoded, z: Tensor, said: Tensor) -> Tensor:
    """Log-probabilities [W] of the next word after `said` [n], with nothing remembered and every
    formula written out, for one trajectory."""
    heard = torch.cat([torch.tensor([BEGIN]), said])
    spoken = torch.cat([model.embed(heard), z.expand(len(heard), -1)], dim=-1)
    state = model.word_lstm(spoken[None])[0][0, -1]
    steps = encoded.steps[0, encoded.is_step[0]]
    alpha = torch.softmax(steps @ (model.step_query.weight @ torch.cat([state, z])), dim=0)
    return torch.log_softmax(model.choose(torch.cat([alpha @ steps, state, z])), dim=0)


def encoded_rows(model: GoalGenerator) -> tuple[Encoded, list[Encoded], Tensor]:
    """All trajectories, each alone, and a z for each."""
    walk = made_up_walk()
    alone = [model.encode(row_of(walk, row)) for row in range(B)]
    return model.encode(walk), alone, torch.randn(B, SIZES.latent, generator=draw(3))


def test_the_likelihood_is_the_product_over_words() -> None:
    model = goal_generator()
    encoded, alone, z = encoded_rows(model)
    padded = torch.cat([WORDS, torch.full((B, 3), PAD)], dim=1)
    found = model.log_likelihood(encoded, padded, z)
    for row in range(B):
        words = WORDS[row][WORDS[row] != PAD]
        each = [
            step_by_step(model, alone[row], z[row], words[:n])[words[n]] for n in range(len(words))
        ]
        torch.testing.assert_close(found[row], torch.stack(each).sum())


def test_the_posterior_reads_the_sentence_but_no_padding() -> None:
    model = goal_generator()
    encoded, alone, _ = encoded_rows(model)
    together = model.posterior_of(encoded, torch.cat([WORDS, torch.full((B, 3), PAD)], dim=1))
    for row in range(B):
        words = WORDS[row : row + 1][:, WORDS[row] != PAD]
        for wide, single in zip(together, model.posterior_of(alone[row], words), strict=True):
            torch.testing.assert_close(wide[row], single[0])
    other = model.posterior_of(encoded, WORDS.where(WORDS != 5, 9))
    changed = (other.mean - together.mean).abs().amax(1) > 1e-6
    assert changed.tolist() == [True, False, False, False]
    assert bool((together.variance > 0).all())


def test_shifted_words() -> None:
    assert shift(torch.tensor([[5, 6, END], [7, END, PAD]])).tolist() == [
        [BEGIN, 5, 6],
        [BEGIN, 7, END],
    ]


def test_word_dropout_hides_all_but_the_beginning() -> None:
    model, walk = goal_generator(), made_up_walk()
    likelihood, kl = model.elbo(walk, WORDS, 1.0, draw(5))
    generator = draw(5)
    torch.rand(WORDS.shape, generator=generator)  # what the dropout drew
    encoded = model.encode(walk)
    q = model.posterior_of(encoded, WORDS)
    heard = torch.full_like(WORDS, UNKNOWN)
    heard[:, 0] = BEGIN
    z = q.sample(generator)
    torch.testing.assert_close(likelihood, model.log_likelihood(encoded, WORDS, z, heard))
    torch.testing.assert_close(kl, kl_divergence(q, model.prior_of(encoded)))
    generator.manual_seed(5)
    torch.rand(WORDS.shape, generator=generator)
    unhidden, _ = model.elbo(walk, WORDS, 0.0, draw(5))
    torch.testing.assert_close(unhidden, model.log_likelihood(encoded, WORDS, z))


# A world to describe: from the hall one goes left or right, and people say either of two things.

LEFT = ["go left to the red room", "enter the bathroom"]
RIGHT = ["go right to the blue room", "enter the kitchen"]
VOCABULARY = Vocabulary.build(LEFT + RIGHT, 1)


def two_routes(rows: Tensor) -> Walk:
    """Walks along route 0 (to the left) or 1 (to the right)."""
    positions = np.array([[0, 0, 1.5], [-3, 1, 1.5], [3, 1, 1.5]])
    edges = np.zeros((3, 3), dtype=bool)
    edges[0, 1:] = edges[1:, 0] = True
    house = House("home", ["hall", "left", "right"], positions, edges, edges, np.full(3, 1.5))
    features = torch.zeros(4, 36, 4 + DIRECTION)
    features[:3] = torch.randn(3, 36, 4 + DIRECTION, generator=draw())
    world = NavGraph([house], features)
    lengths = torch.full((len(rows),), 2)
    actions = world.actions_along(torch.tensor([[0, 1], [0, 2]])[rows], lengths)
    start = torch.full((len(rows),), 12)  # in the hall, facing ahead
    states = torch.stack([start, world.step(start, actions[:, 0])], dim=1)
    seen = world.observe(states.flatten())
    return Walk(Observation(*(x.view(len(rows), 2, *x.shape[1:]) for x in seen)), actions, lengths)


@cache
def trained() -> tuple[GoalGenerator, list[float]]:
    """A generator after a short training, and the loss of each update."""
    model = goal_generator(4 + DIRECTION, len(VOCABULARY))
    generator = draw()
    use_generator(model.train(), generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    walk, words = (
        two_routes(torch.tensor([0, 0, 1, 1] * 4)),
        VOCABULARY.encode((LEFT + RIGHT) * 4, 9),
    )
    losses = []
    for update in range(200):
        likelihood, kl = model.elbo(walk, words, 0.25, generator)
        loss = -likelihood.mean() + min(1, update / 50) * kl.mean().clamp_min(1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model.eval(), losses


# Sentences


def talker() -> tuple[GoalGenerator, Encoded, Tensor]:
    """A model whose sentences end early or late, and forty (trajectory, z), usual ones and odd."""
    model, _ = trained()
    encoded = model.encode(two_routes(torch.tensor([0, 1]))).repeat(20)
    return model, encoded, 2 * torch.randn(40, SIZES.latent, generator=draw(2))


def rows_of(encoded: Encoded, row: int) -> Encoded:
    return Encoded(*(part[row : row + 1] for part in encoded))


def test_greedy_words_are_the_likeliest_step_by_step() -> None:
    model, encoded, z = talker()
    together = model.generate(encoded, z, LIMIT)
    lengths = set()
    for row in range(len(z)):
        said: list[int] = []
        while END not in said:
            one_row = rows_of(encoded, row)
            scores = step_by_step(model, one_row, z[row], torch.tensor(said, dtype=torch.long))
            scores[[PAD, UNKNOWN, BEGIN]] = -torch.inf
            said.append(int(scores.argmax()) if len(said) < LIMIT else END)
        lengths.add(len(said))
        padding = [PAD] * (together.shape[1] - len(said))
        assert together[row].tolist() == said + padding
    assert {4, LIMIT + 1} <= lengths  # short ones, and such as were cut


def test_generating_one_by_one_says_the_same() -> None:
    model, encoded, z = talker()
    together = model.generate(encoded, z, LIMIT)
    for row in range(len(z)):
        alone = model.generate(rows_of(encoded, row), z[row : row + 1], LIMIT)[0]
        assert together[row, : len(alone)].equal(alone)
        assert not bool(together[row, len(alone) :].any())


@pytest.mark.parametrize(("temperature", "nucleus"), [(0.0, 1.0), (1.0, 1.0), (1.5, 0.8)])
@pytest.mark.parametrize("limit", [0, 1, LIMIT])
def test_sentences_end_once_and_stay_ended(temperature: float, nucleus: float, limit: int) -> None:
    model, encoded, z = talker()
    words = model.generate(
        encoded, z, limit, temperature=temperature, nucleus=nucleus, generator=draw()
    )
    assert words.shape[1] <= limit + 1
    assert (words == END).sum(1).tolist() == [1] * len(z)
    at = torch.arange(words.shape[1])
    end = (words == END).int().argmax(1)[:, None]
    assert bool((words[at > end] == PAD).all())
    assert bool((words[at < end] > END).all())
    assert bool((words != PAD).any(0).all())  # no column of padding alone


def test_samples_repeat_with_their_generator() -> None:
    model, encoded, z = talker()
    first, again, other = (
        model.generate(encoded, z, LIMIT, temperature=1.0, generator=draw(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_a_cool_temperature_is_greedy() -> None:
    model, encoded, z = talker()
    cool = model.generate(encoded, z, LIMIT, temperature=1e-4, generator=draw())
    assert torch.equal(cool, model.generate(encoded, z, LIMIT))


LOGITS = torch.tensor([0.15, 0.5, 0.05, 0.3]).log()


@pytest.mark.parametrize(
    ("nucleus", "inside"),
    [
        (0.01, {1}),
        (0.49, {1}),
        (0.51, {1, 3}),
        (0.79, {1, 3}),
        (0.81, {0, 1, 3}),
        (1.0, {0, 1, 2, 3}),
    ],
)
def test_only_words_of_the_nucleus_are_drawn(nucleus: float, inside: set[int]) -> None:
    count = 4000
    words = pick(LOGITS.expand(count, -1), 1.0, nucleus, draw())
    share = {word: n / count for word, n in Counter(words.tolist()).items()}
    mass = sum(LOGITS[word].exp().item() for word in inside)
    assert share.keys() == inside
    for word in inside:
        assert share[word] == pytest.approx(LOGITS[word].exp().item() / mass, abs=0.04)


def test_temperature_sharpens_before_the_nucleus_is_taken() -> None:
    """At temperature ½ the probabilities are squared: ½ becomes 0.25 / 0.365 = 0.68."""
    sharp = pick(LOGITS.expand(4000, -1), 0.5, 1.0, draw())
    assert (sharp == 1).double().mean().item() == pytest.approx(0.25 / 0.365, abs=0.04)
    assert set(pick(LOGITS.expand(500, -1), 0.5, 0.6, draw()).tolist()) == {1}


def test_the_bound_improves() -> None:
    """At the end it is near ln 2 for the choice of a sentence, and one nat for z."""
    losses = trained()[1]
    assert losses[0] > 10
    assert sum(losses[-10:]) / 10 < 3


def test_a_small_world_is_described_truly_and_in_both_ways() -> None:
    model, _ = trained()
    encoded = model.encode(two_routes(torch.tensor([0, 1]))).repeat(100)
    z = model.prior_of(encoded).sample(draw(1))
    said = [text.lower() for text in VOCABULARY.decode(model.generate(encoded, z, 9))]
    for route, human in enumerate([LEFT, RIGHT]):
        counts = Counter(said[100 * route : 100 * (route + 1)])
        assert counts[human[0]] + counts[human[1]] >= 90, counts
        assert min(counts[text] for text in human) >= 10, counts
