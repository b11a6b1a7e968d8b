"""Goals made after the fact, and the demonstrations that they are added to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from langgoalirl.demonstrations import DemonstrationSet, observe_along
from langgoalirl.irl import algorithm
from langgoalirl.irl.algorithm import expert_table, relabel_experts
from langgoalirl.irl.learner import Learner, Rates
from langgoalirl.irl.relabel import Goals, Relabeller
from langgoalirl.irl.transitions import Episodes
from langgoalirl.language.vocabulary import END, PAD, Vocabulary
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import GoalGenerator, Walk
from langgoalirl.models.layers import masked_log_softmax
from langgoalirl.models.policy import FrozenEncoder, PolicyHead
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling, path_log_likelihood
from langgoalirl.pretrain import initialised
from langgoalirl.rollout import STEP_LIMIT
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.types import NO_ACTION, STOP

torch.set_num_threads(1)

CPU = torch.device("cpu")
WORLD = Houses(seed=0, houses=1, unseen=1, routes=4)
SPLIT = WORLD.split("train")
VOCABULARY = Vocabulary.build(SPLIT.tasks.goals, 1)
LIMIT = 12
DATA = DemonstrationSet(WORLD, SPLIT, VOCABULARY, LIMIT)
SIZES = Sizes(hidden=8, word=4, angle=2, latent=4)
BASE: BaseModel = initialised(1, BaseModel, WORLD.feature_width, len(VOCABULARY), SIZES).eval()
GENERATOR: GoalGenerator = initialised(
    2, GoalGenerator, WORLD.feature_width, len(VOCABULARY), SIZES
).eval()
ENCODER = FrozenEncoder(BASE)
LEARNER = Learner(
    WORLD, PolicyHead(WORLD.feature_width, SIZES), SIZES, STEP_LIMIT, Rates(precision="fp32")
)
with torch.no_grad():  # an untrained one says the same of everything; make it listen to z
    for layer in (GENERATOR.choose, GENERATOR.prior):
        for parameter in layer.parameters():
            parameter.mul_(6)


def relabeller(samples: int = 1) -> Relabeller:
    return Relabeller(WORLD, GENERATOR, BASE, Sampling(samples, limit=LIMIT - 1))


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def episodes() -> Episodes:
    """The demonstrations, as if they had been walked just now."""
    batch = DATA.rows(torch.arange(len(DATA)))
    with torch.no_grad():
        seen = observe_along(WORLD, batch, torch.float32)
        state = BASE.state.sequence(seen.views, seen.facing)
    return Episodes(batch.states, batch.actions, state, (), ())


# The generator


def test_a_relabelled_goal_is_a_sentence() -> None:
    words = relabeller()(episodes(), draw(0))
    assert words.shape == (len(DATA), LIMIT)
    for row in words.tolist():
        end = row.index(END)
        assert all(word > END for word in row[:end])
        assert row[end + 1 :] == [PAD] * (LIMIT - end - 1)


def test_relabelling_is_another_draw_each_time_and_repeats_with_its_generator() -> None:
    first = relabeller()(episodes(), draw(0))
    assert torch.equal(first, relabeller()(episodes(), draw(0)))
    assert not torch.equal(first, relabeller()(episodes(), draw(1)))


def test_what_lies_behind_the_end_of_an_episode_does_not_matter() -> None:
    first = episodes()
    ended = first.actions == NO_ACTION
    assert bool(ended.any())
    other = first._replace(keys=torch.where(ended, 0, first.keys))
    for samples in (1, 3):
        said = [relabeller(samples)(one, draw(0)) for one in (first, other)]
        assert torch.equal(*said)


def test_of_several_sentences_the_one_that_is_followed_best_is_taken() -> None:
    """By the base model's likelihood of the path, worked out sentence by sentence."""
    every = episodes()
    chosen = relabeller(4)(every, draw(3))
    seen = observe_along(WORLD, DATA.rows(torch.arange(len(DATA))), torch.float32)

    def likelihood(words: Tensor) -> Tensor:
        with torch.no_grad():
            log_p = masked_log_softmax(BASE(words, seen), seen.mask)
        taken = log_p.gather(-1, every.actions.clamp_min(STOP)[..., None])[..., 0]
        return torch.where(every.actions != NO_ACTION, taken, 0.0).sum(1)

    torch.testing.assert_close(
        path_log_likelihood(BASE, every.state, seen, every.actions, chosen[:, None])[:, 0],
        likelihood(chosen),
    )
    # The same draw, one sentence at a time.
    encoded = GENERATOR.encode(
        Walk(seen, every.actions, (every.actions != NO_ACTION).sum(1))
    ).repeat(4)
    z = GENERATOR.prior_of(encoded).sample(draw(3))
    said = GENERATOR.generate(encoded, z, LIMIT - 1).view(len(DATA), 4, -1)
    each = torch.stack([likelihood(said[:, i]) for i in range(4)])
    torch.testing.assert_close(likelihood(chosen), each.amax(0))
    assert bool((each.amax(0) > each.amin(0) + 1e-4).any())  # there was something to choose


# 𝒟̃


@pytest.mark.parametrize("goals", [0, 1, 3])
def test_egr_adds_goals_to_every_demonstration_with_its_path(goals: int) -> None:
    generated = torch.zeros(len(DATA), 0, LIMIT, dtype=torch.long)
    if goals:
        generated = relabel_experts(DATA, ENCODER, relabeller(), goals, seed=0)
    assert generated.shape == (len(DATA), goals, LIMIT)
    pool, table = expert_table(LEARNER, ENCODER, DATA, generated)
    steps = int((DATA.actions != NO_ACTION).sum())
    assert pool.size == len(DATA) * (1 + goals)
    assert table.size == table.capacity == steps * (1 + goals)
    assert torch.equal(pool.start, DATA.states[:, 0].int().repeat(1 + goals))
    width = DATA.words.shape[1]
    assert torch.equal(pool.words[: len(DATA), :width].long(), DATA.words)
    for n in range(goals):
        own = pool.words[(n + 1) * len(DATA) : (n + 2) * len(DATA), :LIMIT]
        assert torch.equal(own.long(), generated[:, n])
    # Every copy holds the experts' steps, and what the encoder makes of each under its goal.
    done = DATA.actions != NO_ACTION
    batch = DATA.rows(torch.arange(len(DATA)))
    seen = observe_along(WORLD, batch, torch.float32)
    for n, words in enumerate((DATA.words, *generated.unbind(1))):
        own_steps = table.at(torch.arange(n * steps, (n + 1) * steps))
        assert torch.equal(own_steps.now.key, DATA.states[done])
        assert torch.equal(own_steps.action, DATA.actions[done])
        assert torch.equal(own_steps.last, DATA.actions[done] == STOP)
        frozen = ENCODER.along(words, seen)
        torch.testing.assert_close(own_steps.now.state, frozen.state[done])
        torch.testing.assert_close(own_steps.now.goal, frozen.goal[done])


def test_the_goals_of_a_demonstration_differ_from_one_another() -> None:
    generated = relabel_experts(DATA, ENCODER, relabeller(), 2, seed=0)
    assert not torch.equal(generated[:, 0], generated[:, 1])
    assert torch.equal(generated, relabel_experts(DATA, ENCODER, relabeller(), 2, seed=0))
    assert not torch.equal(generated, relabel_experts(DATA, ENCODER, relabeller(), 2, seed=1))


def test_demonstrations_are_encoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are there, whatever the size of a part."""
    generated = relabel_experts(DATA, ENCODER, relabeller(), 1, seed=0)
    whole = expert_table(LEARNER, ENCODER, DATA, generated)[0]
    monkeypatch.setattr(algorithm, "AT_ONCE", 5)
    assert relabel_experts(DATA, ENCODER, relabeller(), 1, seed=0).shape == generated.shape
    parts, table = expert_table(LEARNER, ENCODER, DATA, generated)
    assert table.size == table.capacity

    def rows(pool: Goals) -> list[list[int]]:
        both = pool.words.tolist(), pool.start.tolist()
        return sorted([*words, start] for words, start in zip(*both, strict=True))

    assert rows(parts) == rows(whole)


def test_without_attention_the_goal_of_an_episode_is_one_vector() -> None:
    """LC-RL: the instruction's last word state beside every state."""
    encoder = FrozenEncoder(BASE, attention=False)
    none = torch.zeros(len(DATA), 0, LIMIT, dtype=torch.long)
    _, table = expert_table(LEARNER, encoder, DATA, none)
    out = table.at(torch.arange(table.size))
    torch.testing.assert_close(out.now.goal, out.then.goal)
    _, attending = expert_table(LEARNER, ENCODER, DATA, none)
    seen = attending.at(torch.arange(attending.size))
    assert not torch.allclose(seen.now.goal[~seen.last], seen.then.goal[~seen.last])


# 𝒢


@given(st.integers(3, 8), st.lists(st.integers(1, 3), min_size=1, max_size=9))
def test_a_full_pool_forgets_its_oldest_goals(capacity: int, batches: list[int]) -> None:
    pool, every = Goals(capacity, 3, CPU), list[tuple[int, int]]()
    for size in batches:
        number = torch.arange(len(every), len(every) + size)
        pool.add(number, torch.stack([number + 4, torch.full_like(number, END)], dim=1))
        every += [(int(n), int(n) + 4) for n in number]
        held = every[-capacity:]
        assert pool.size == len(held)
        both = pool.start[: pool.size].tolist(), pool.words[: pool.size, 0].tolist()
        assert sorted(zip(*both, strict=True)) == held
        assert bool((pool.words[: pool.size, 2] == PAD).all())


def test_a_shorter_sentence_leaves_nothing_of_the_one_that_it_replaces() -> None:
    pool = Goals(2, 4, CPU)
    pool.add(torch.tensor([1, 2]), torch.tensor([[5, 6, 7, END]] * 2))
    pool.add(torch.tensor([3]), torch.tensor([[8, END]]))
    assert pool.words.tolist() == [[8, END, PAD, PAD], [5, 6, 7, END]]
    assert pool.start.tolist() == [3, 2]


def test_the_pool_comes_back_from_a_checkpoint() -> None:
    first, other = Goals(3, 2, CPU), Goals(3, 2, CPU)
    for n in range(4):
        first.add(torch.tensor([n]), torch.tensor([[n + 4, END]]))
    other.restore({k: v.clone() for k, v in first.tensors().items()}, first.head)
    for pool in (first, other):
        pool.add(torch.tensor([9]), torch.tensor([[13, END]]))
    assert torch.equal(first.words, other.words)
    assert torch.equal(first.start, other.start)
    assert (first.size, first.head) == (other.size, other.head)


def test_sampling_from_a_pool_is_uniform() -> None:
    pool = Goals(10, 2, CPU)
    pool.add(torch.arange(4), torch.tensor([[n + 4, END] for n in range(4)]))
    start, words = pool.sample(8000, draw(0))
    assert torch.equal(words[:, 0], start + 4)
    assert bool(((torch.bincount(start, minlength=4) - 2000).abs() < 160).all())
