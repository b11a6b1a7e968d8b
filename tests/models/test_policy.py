"""The policy on the frozen state, and the one that listens to nobody."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from langgoalirl.language.vocabulary import END, PAD
from langgoalirl.models.base_model import DIRECTION, BaseModel
from langgoalirl.models.layers import use_generator
from langgoalirl.models.policy import (
    Frozen,
    FrozenEncoder,
    GoalAgnosticPolicy,
    Policy,
    PolicyHead,
    last_word,
)
from langgoalirl.models.sizes import Sizes
from langgoalirl.run_folder import digest
from langgoalirl.worlds.types import STOP, Observation

torch.set_num_threads(1)

B, T, K, D = 3, 4, 3, 7
SIZES = Sizes(hidden=8, word=6, angle=3, latent=4)
WORDS = torch.tensor([[5, 6, 7, END], [9, 4, END, PAD], [4, END, PAD, PAD]])


def observed() -> Observation:
    """Made-up trajectories [B, T, …], in which every candidate exists."""
    draw = torch.Generator().manual_seed(0)
    actions = torch.randn(B, T, K, D, generator=draw)
    actions[:, :, STOP] = 0
    views = torch.randn(B, T, 6, D, generator=draw)
    facing = torch.randn(B, T, DIRECTION, generator=draw)
    return Observation(views, actions, torch.ones(B, T, K, dtype=torch.bool), facing)


def policy(attention: bool = True) -> Policy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        encoder = FrozenEncoder(BaseModel(D, 10, SIZES), attention)
        return Policy(encoder, PolicyHead(D, SIZES)).eval()


def goal_agnostic() -> GoalAgnosticPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return GoalAgnosticPolicy(D, SIZES).eval()


def act_along(model: Policy | GoalAgnosticPolicy, seen: Observation) -> Tensor:
    """Logits [B, T, K], one step at a time."""
    memory, logits = model.begin(WORDS), []
    for t in range(T):
        step, memory = model.act(Observation(*(part[:, t] for part in seen)), memory)  # type: ignore[arg-type]
        logits.append(step)
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("attention", [False, True])
def test_acting_along_a_path_gives_the_forward_logits(attention: bool) -> None:
    model = policy(attention)
    torch.testing.assert_close(act_along(model, observed()), model(WORDS, observed()))


def test_the_goal_agnostic_policy_acts_as_it_was_trained() -> None:
    model = goal_agnostic()
    torch.testing.assert_close(act_along(model, observed()), model(WORDS, observed()))


def test_the_goal_agnostic_policy_listens_to_nobody() -> None:
    model = goal_agnostic()
    assert torch.equal(model(WORDS, observed()), model(WORDS.roll(1, 0), observed()))
    assert not torch.allclose(policy()(WORDS, observed()), policy()(WORDS.roll(1, 0), observed()))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", [policy(), goal_agnostic()])
def test_stop_has_the_logit_zero(model: Policy | GoalAgnosticPolicy, training: bool) -> None:
    use_generator(model.train(training), torch.Generator().manual_seed(0))
    logits = model(WORDS, observed())
    assert torch.equal(logits[..., STOP], torch.zeros(B, T))
    assert bool((logits[..., 1:] != 0).all())


def test_the_score_by_hand() -> None:
    model, seen = policy(), observed()
    frozen = model.encoder.along(WORDS, seen)
    torch.testing.assert_close(
        frozen.state, model.encoder.base.state.sequence(seen.views, seen.facing)
    )
    wanted = model.head.mlp(torch.cat([frozen.state, frozen.goal], dim=-1)[2, 3])
    torch.testing.assert_close(model(WORDS, seen)[2, 3], seen.actions[2, 3] @ wanted)


def test_with_attention_the_goal_is_the_base_models() -> None:
    encoder, state = policy().encoder, torch.randn(B, T, 8, generator=torch.Generator())
    wanted = encoder.base.attended_goal(state, encoder.base.read(WORDS))
    assert torch.equal(encoder.goal(state, WORDS), wanted)
    assert not torch.allclose(wanted[:, 0], wanted[:, 1])


def test_without_attention_the_goal_is_the_last_word_whatever_is_seen() -> None:
    encoder, state = policy(attention=False).encoder, torch.zeros(B, T, 8)
    goal = encoder.goal(state, WORDS)
    assert torch.equal(goal, encoder.goal(state + 1, WORDS))
    for row, length in enumerate([4, 3, 2]):
        alone = encoder.base.read(WORDS[row : row + 1, :length])[0][0, -1]
        torch.testing.assert_close(goal[row], alone.expand(T, -1))


def test_the_last_word_by_hand() -> None:
    encoded = torch.arange(6.0).view(2, 3, 1)
    is_word = torch.tensor([[True, True, False], [True, True, True]])
    assert last_word(encoded, is_word).tolist() == [[1.0], [5.0]]


def test_the_encoder_stays_frozen() -> None:
    """Neither dropout nor a gradient nor a step of an optimizer reaches the base model."""
    model = policy().train()
    use_generator(model, torch.Generator().manual_seed(0))
    assert model.head.training
    assert not any(module.training for module in model.encoder.modules())
    before, head = digest(model.encoder.state_dict()), digest(model.head.state_dict())
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learning)
    model(WORDS, observed()).square().sum().backward()
    optimizer.step()
    assert {id(p) for p in learning} == {id(p) for p in model.head.parameters()}
    assert digest(model.encoder.state_dict()) == before
    assert digest(model.head.state_dict()) != head


def test_the_heads_factor_equals_masking_the_candidates() -> None:
    head = PolicyHead(D, Sizes(hidden=8, dropout=0.0, feature_dropout=0.5))
    draw = torch.Generator()
    use_generator(head.train(), draw)
    frozen = Frozen(*torch.randn(2, 5, 8, generator=draw.manual_seed(1)))
    actions = torch.randn(5, K, D, generator=draw)
    draw.manual_seed(2)
    mask = head.mask(actions)
    draw.manual_seed(2)
    trained = head(frozen, actions)
    torch.testing.assert_close(trained, head.eval()(frozen, actions * mask[:, None]))
    assert bool((mask == 0).any())
