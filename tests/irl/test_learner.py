"""One update, worked out by hand from the networks' own answers on worlds of two nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import EXACT, TinyWorld, new_learner, sizes, steps, stirred
from torch import Tensor

from langgoalirl.irl.learner import GoalState, Learner, Rates
from langgoalirl.irl.networks import FLOOR, ActionValue, RewardModel, policy_logits
from langgoalirl.irl.transitions import Situation, Steps
from langgoalirl.run_folder import digest
from langgoalirl.worlds.types import STOP

WAYS = [[1], [0]]  # two nodes; the only way leads to the other one
HORIZON, HIDDEN = 3, 8
ON, END, LATE = (0, 0, 1, 2), (1, 1, STOP, 2), (0, 2, 1, 3)  # node, time, action, goal
GAMMA = 0.9
RATES = replace(EXACT, gamma=GAMMA)


def world(padding: int = 0) -> TinyWorld:
    return TinyWorld(WAYS, padding)


def batch(made: Learner, *rows: tuple[int, int, int, int]) -> Steps:
    return steps(made, HORIZON, HIDDEN, list(rows))


def learner(rates: Rates = RATES, *, padding: int = 0, stir: bool = True, **more: Any) -> Learner:
    """Random weights in everything, targets and prior apart from what they follow."""
    made = new_learner(world(padding), HORIZON, HIDDEN, rates, **more)
    if stir:
        parts = (made.policy, made.reward, made.q, made.q_target, made.prior.head)
        for seed, part in enumerate(p for p in parts if p is not None):
            stirred(part, seed)
    return made


def log_pi(made: Learner, head: Any, at: Situation) -> list[float]:
    """log π of *stop* and of the other node, by the policy's own definition."""
    wanted = head.mlp(torch.cat([at.state, at.goal], -1))[0]
    logits = torch.stack([torch.zeros(()), wanted[0]])  # e^a = (1, 0) for the only way
    return torch.log_softmax(logits, 0).tolist()


def residual(net: ActionValue, at: Situation, action: int) -> Tensor:
    """[heads] the network's answer for one candidate alone."""
    embedding = torch.tensor([[float(action != STOP), 0.0]])
    return net(at, None, embedding)[:, 0]


def f_by_hand(made: Learner, one: Steps) -> tuple[float, float]:
    """f and g of a single step."""
    assert isinstance(made.reward, RewardModel)
    action = int(one.action)
    g = residual(made.reward.g, one.now, action).item()
    g += log_pi(made, made.prior.head, one.now)[action] if made.prior.head is not None else 0.0
    after = 0.0 if bool(one.last) else made.reward.h(one.then).item()
    return g + GAMMA * after - made.reward.h(one.now).item(), g


def one(made: Learner, row: tuple[int, int, int, int]) -> Steps:
    return batch(made, row)


@pytest.mark.parametrize("from_prior", [False, True])
def test_f_is_reward_and_shaping_on_top_of_the_prior(from_prior: bool) -> None:
    made = learner(from_prior=from_prior)
    every = batch(made, ON, END, LATE)
    f, g = made.f(every, made.choices(every.now.key))
    wanted = [f_by_hand(made, one(made, row)) for row in (ON, END, LATE)]
    assert f.tolist() == pytest.approx([pair[0] for pair in wanted], abs=1e-5)
    assert g.tolist() == pytest.approx([pair[1] for pair in wanted], abs=1e-5)
    assert len({round(x, 3) for x in f.tolist()}) == 3


def test_the_discriminators_loss_by_hand() -> None:
    """log π is the current policy's, and an expert that stopped stays stopped."""
    made = learner(replace(RATES, smoothing=0.1))
    assert isinstance(made.reward, RewardModel)
    with torch.no_grad():
        made.reward.absorbed.copy_(torch.tensor([0.3, -0.2, 0.7]))

    def logit(row: tuple[int, int, int, int]) -> float:
        step = one(made, row)
        return f_by_hand(made, step)[0] - log_pi(made, made.policy, step.now)[int(step.action)]

    def cross_entropy(x: float, label: float) -> float:
        d = 1 / (1 + math.exp(-x))
        return -label * math.log(d) - (1 - label) * math.log(1 - d)

    positive = [logit(ON), logit(END), 0.7]  # stopped at 1, so absorbed at 2
    negative = [logit(ON), logit(LATE)]
    wanted = sum(cross_entropy(x, 0.9) for x in positive) / 3
    wanted += sum(cross_entropy(x, 0.1) for x in negative) / 2
    measured = made.update_discriminator(batch(made, ON, END), batch(made, ON, LATE))
    assert measured["d_loss"].item() == pytest.approx(wanted, abs=1e-5)
    assert measured["d_positive"].item() == sum(x > 0 for x in positive[:2]) / 2
    assert measured["d_negative"].item() == sum(x < 0 for x in negative) / 2


def test_the_discriminator_looks_at_the_policy_as_it_is_now() -> None:
    losses = []
    for stirring in (0, 1):
        made = learner()
        stirred(made.policy, 7 + stirring)
        losses.append(
            made.update_discriminator(batch(made, ON), batch(made, LATE))["d_loss"].item()
        )
    assert losses[0] != losses[1]


def test_only_the_discriminator_learns_from_a_discriminator_update() -> None:
    made = learner()
    before = {name: digest(part.state_dict()) for name, part in made.named_children()}
    made.update_discriminator(batch(made, ON, END), batch(made, ON, LATE))
    after = {name: digest(part.state_dict()) for name, part in made.named_children()}
    assert [name for name in before if before[name] != after[name]] == ["reward"]


def huber(x: float) -> float:
    return x * x / 2 if abs(x) < 1 else abs(x) - 0.5


@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["f", "g"])
def test_the_critics_targets_by_hand(kind: str, alpha: float) -> None:
    """On the way: V of the target critics. After *stop*: what being absorbed is worth. At the
    horizon: nothing."""
    made = learner(replace(RATES, reward=kind, alpha=alpha))
    assert isinstance(made.reward, RewardModel)
    absorbed = [0.3, -0.2, 0.7]
    with torch.no_grad():
        made.reward.absorbed.copy_(torch.tensor(absorbed))

    def both(net: ActionValue, at: Situation, action: int) -> list[float]:
        prior = log_pi(made, made.prior.head, at)[action]
        return [x + prior for x in residual(net, at, action).tolist()]

    there = one(made, ON).then
    value = sum(
        math.exp(p) * (min(both(made.q_target, there, action)) - alpha * p)
        for action, p in enumerate(log_pi(made, made.policy, there))
    )
    after = {ON: value, END: absorbed[2], LATE: 0.0}
    residuals = []
    for row in (ON, END, LATE):
        step = one(made, row)
        target = f_by_hand(made, step)[0 if kind == "f" else 1] + GAMMA * after[row]
        residuals.append([q - target for q in both(made.q, step.now, int(step.action))])
    wanted = sum(huber(x) for row in residuals for x in row) / 3
    measured = made.update_policy(batch(made, ON, END, LATE))
    assert measured["q_loss"].item() == pytest.approx(wanted, abs=1e-5)


def test_stopping_early_earns_what_being_absorbed_is_worth_from_the_next_step_on() -> None:
    """At every time, the last one included, which indexes one behind the horizon."""
    made = learner()
    assert isinstance(made.reward, RewardModel)
    with torch.no_grad():
        made.reward.absorbed.copy_(torch.tensor([100.0, 10.0, 1.0]))
    worth = [10 + GAMMA * 1, 1.0, 0.0]
    for time in range(HORIZON):
        row = (1, time, STOP, 2)
        prior = log_pi(made, made.prior.head, one(made, row).now)[STOP]
        target = f_by_hand(made, one(made, row))[0] + GAMMA * worth[time]
        q = [x + prior for x in residual(made.q, one(made, row).now, STOP).tolist()]
        measured = learner_like(made).update_policy(batch(made, row))["q_loss"].item()
        assert measured == pytest.approx(sum(huber(x - target) for x in q), abs=1e-4)


def learner_like(made: Learner) -> Learner:
    """Another one with the same weights, to be updated in its place."""
    other = learner(made.rates)
    other.load_state_dict(made.state_dict())
    return other


def test_the_reward_is_the_discriminators_as_it_is_now() -> None:
    made = learner()
    every = batch(made, ON, END, LATE)
    for seed in (1, 2):
        wanted = sum(f_by_hand(made, one(made, row))[0] for row in (ON, END, LATE)) / 3
        measured = made.update_policy(every)["reward"].item()
        assert measured == pytest.approx(wanted, abs=1e-5)
        stirred(made.reward, seed)


def test_the_policys_gradient_by_hand() -> None:
    """J_π takes the smaller critic, after its update, and moves neither critics nor reward."""
    made = learner(replace(RATES, alpha=0.5))
    every = batch(made, ON, END)
    grads: list[Tensor] = []
    policy: Any = made.policy
    policy.mlp[-1].bias.register_hook(grads.append)
    before = {name: digest(part.state_dict()) for name, part in made.named_children()}
    probability = [log_pi(made, made.policy, one(made, row).now) for row in (ON, END)]
    made.update_policy(every)
    wanted = 0.0
    for row, log_p in zip((ON, END), probability, strict=True):
        at = one(made, row).now
        prior = log_pi(made, made.prior.head, at)
        q = [min(residual(made.q, at, a).tolist()) + prior[a] for a in (0, 1)]
        cost = [0.5 * log_p[a] - q[a] for a in (0, 1)]
        mean = sum(math.exp(log_p[a]) * cost[a] for a in (0, 1))
        wanted += math.exp(log_p[1]) * (cost[1] - mean) / 2
    assert grads[0][0].item() == pytest.approx(wanted, abs=1e-5)
    assert grads[0][1].item() == 0  # a direction that no candidate has
    after = {name: digest(part.state_dict()) for name, part in made.named_children()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"policy", "q", "q_target", "kept"}


def test_targets_and_kept_policy_follow_by_their_shares() -> None:
    made = learner(replace(RATES, target_rate=0.2, average=0.9))
    before = {
        name: [p.clone() for p in part.parameters()]
        for name, part in (("q_target", made.q_target), ("kept", made.kept))
    }
    made.update_policy(batch(made, ON, END))
    for name, fast, share in (("q_target", made.q, 0.2), ("kept", made.policy, 0.1)):
        slow = getattr(made, name).parameters()
        for old, new, towards in zip(before[name], slow, fast.parameters(), strict=True):
            torch.testing.assert_close(new, (1 - share) * old + share * towards)


@pytest.mark.parametrize(("wanted", "sign"), [(0.01, -1), (0.69, 1)])
def test_the_temperature_is_tuned_towards_the_wanted_entropy(wanted: float, sign: int) -> None:
    made = learner(replace(RATES, entropy=wanted, alpha=0.5, policy_rate=1e-2))
    measured = made.update_policy(batch(made, ON, END))
    by_hand = [
        -sum(
            math.exp(p) * p
            for p in log_pi(learner(RATES), learner(RATES).policy, one(made, row).now)
        )
        for row in (ON, END)
    ]
    assert measured["entropy"].item() == pytest.approx(sum(by_hand) / 2, abs=1e-5)
    assert measured["alpha"].item() == pytest.approx(0.5)
    assert made.log_alpha.item() - math.log(0.5) == pytest.approx(sign * 1e-2, rel=1e-3)


def test_without_a_wanted_entropy_the_temperature_stays() -> None:
    made = learner(replace(RATES, alpha=0.5))
    made.update_policy(batch(made, ON, END))
    assert made.alpha.item() == pytest.approx(0.5)


def test_from_the_prior_everything_agrees_at_the_start() -> None:
    """f = Q = log π: no verdict of the discriminator, no residual, and nothing that pulls."""
    made = learner(replace(RATES, gamma=1.0), stir=False)
    positive, negative = batch(made, ON, END), batch(made, ON, LATE)
    f, _ = made.f(negative, made.choices(negative.now.key))
    taken = negative.now.prior.gather(1, negative.action[:, None])[:, 0]
    torch.testing.assert_close(f, taken)
    measured = made.update_policy(negative)
    assert measured["q_loss"].item() == pytest.approx(0.0, abs=1e-9)
    assert measured["pi_loss"].item() == pytest.approx(0.0, abs=1e-6)
    measured = made.update_discriminator(positive, negative)
    assert measured["d_loss"].item() == pytest.approx(2 * math.log(2), abs=1e-3)


def test_without_a_prior_everything_starts_at_zero() -> None:
    made = learner(stir=False, from_prior=False)
    every = batch(made, ON, END)
    choices = made.choices(every.now.key)
    assert torch.equal(every.now.prior, torch.zeros(2, 2))
    assert torch.equal(made.f(every, choices)[0], torch.zeros(2))
    assert torch.equal(made.values(made.q, every.now, choices), torch.zeros(2, 2, 2))
    assert not any(name.startswith("prior") for name in made.results())


@pytest.mark.parametrize("from_prior", [False, True])
def test_absent_candidates_change_nothing(from_prior: bool) -> None:
    """Padding of the width of K, with anything in it, gives the same bytes after updates."""
    ends = []
    for padding in (0, 3):
        made = learner(padding=padding, from_prior=from_prior)
        for _ in range(2):
            measured = made.update_discriminator(batch(made, ON, END), batch(made, ON, LATE))
            measured |= made.update_policy(batch(made, ON, END, LATE))
        ends.append((digest(made.state_dict()), {k: v.item() for k, v in measured.items()}))
    assert ends[0] == ends[1]


def test_the_added_policy_starts_from_the_prior_and_only_what_is_added_learns() -> None:
    made = learner(replace(RATES, policy="added"), stir=False)
    every = batch(made, ON, END)
    choices = made.choices(every.now.key)
    start = made.log_pi(every.now, choices)
    torch.testing.assert_close(start, every.now.prior)
    with torch.no_grad():
        made.policy.bias.fill_(0.25)  # type: ignore[operator]
        added = policy_logits(made.policy, every.now, choices) - start
    assert (added - 0.25).abs().max() < 1e-6  # the same for all actions changes nothing
    stirred(made.q)
    before = {name: digest(part.state_dict()) for name, part in made.named_children()}
    made.update_policy(every)
    after = {name: digest(part.state_dict()) for name, part in made.named_children()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"policy", "q", "q_target", "kept"}


def test_the_added_policys_gradient_by_hand() -> None:
    """At the start π is the prior, so Σ_i π(a_i) [α log π(a_i) - Q(a_i)] has a known slope."""
    made = learner(replace(RATES, policy="added", alpha=0.5), stir=False)
    for seed, part in enumerate((made.prior.head, made.q, made.q_target)):
        assert part is not None
        stirred(part, seed)
    assert isinstance(made.policy, ActionValue)
    out: list[Tensor] = []
    at = one(made, ON).now
    log_p = log_pi(made, made.prior.head, at)
    states = made.policy.state(torch.cat([at.state, at.goal], -1))
    seen = [
        torch.relu(states + made.policy.action(torch.tensor([[float(a), 0.0]])))[0] for a in (0, 1)
    ]
    made.policy.out.register_hook(out.append)
    made.update_policy(one(made, ON))
    q = [min(residual(made.q, at, a).tolist()) + log_p[a] for a in (0, 1)]
    cost = [0.5 * log_p[a] - q[a] for a in (0, 1)]
    mean = sum(math.exp(log_p[a]) * cost[a] for a in (0, 1))
    wanted = sum(math.exp(log_p[a]) * (cost[a] - mean) * seen[a] for a in (0, 1))
    torch.testing.assert_close(out[0][0], wanted, atol=1e-5, rtol=1e-4)


def test_very_unlikely_actions_stay_finite() -> None:
    """Logits of thousands: log π is floored for discriminator and prior, and nothing is NaN."""
    made = learner()
    heads: list[Any] = [made.policy, made.prior.head]
    for head in heads:
        with torch.no_grad():
            head.mlp[-1].bias.copy_(torch.tensor([5e3, 0.0]))
    assert batch(made, END).now.prior[0, STOP].item() == FLOOR
    for _ in range(3):
        measured = made.update_discriminator(batch(made, ON, END), batch(made, END, LATE))
        measured |= made.update_policy(batch(made, ON, END, LATE))
        assert all(bool(value.isfinite()) for value in measured.values())
    assert all(bool(value.isfinite().all()) for value in made.state_dict().values())


def test_a_node_with_no_way_out_has_one_action() -> None:
    """A single candidate: log π = 0 and no gradient, not a NaN."""
    alone = TinyWorld([[1], []])
    made = new_learner(alone, HORIZON, HIDDEN, RATES)
    stirred(made.policy)
    rows = steps(made, HORIZON, HIDDEN, [(1, 0, STOP, 2), (1, 2, STOP, 3)])
    head = digest(made.policy.state_dict())
    measured = made.update_discriminator(rows, rows) | made.update_policy(rows)
    assert all(bool(value.isfinite()) for value in measured.values())
    assert measured["entropy"].item() == 0
    assert digest(made.policy.state_dict()) == head


# Chance


def trained(seed: int, rates: Rates) -> str:
    made = learner(rates)
    made.generator.manual_seed(seed)
    for _ in range(3):
        made.update_discriminator(batch(made, ON, END), batch(made, ON, LATE))
        made.update_policy(batch(made, ON, END, LATE))
    return digest(made.state_dict())


def test_updates_depend_on_their_own_generator_alone() -> None:
    """Dropout included; torch's global state is neither read nor moved."""
    rates = replace(RATES, dropout=0.5, precision="bf16")
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = trained(0, rates)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert trained(0, rates) == first
    assert trained(1, rates) != first


def test_in_evaluation_nothing_is_dropped() -> None:
    made = learner(replace(RATES, dropout=0.5))
    assert not any(module.training for module in made.modules())
    made.update_discriminator(batch(made, ON, END), batch(made, ON, LATE))
    made.update_policy(batch(made, ON, END, LATE))
    assert not any(module.training for module in made.modules())


# AGILE


def agile() -> Learner:
    return learner(agile=True)


def test_agile_pays_for_stopping_where_it_sees_the_goal() -> None:
    made = agile()
    assert isinstance(made.reward, GoalState)
    rows = [(0, 0, STOP, 2), (1, 1, STOP, 3), (0, 1, 1, 2), (1, 2, STOP, 2), (0, 2, STOP, 3)]
    every = batch(made, *rows)
    yes = made.reward.score(every.now) > 0
    assert 0 < int(yes[[0, 1, 3, 4]].sum()) < 4
    paid, absorbed = made.paid(every, made.choices(every.now.key))
    assert paid.tolist() == [float(y and row[2] == STOP) for y, row in zip(yes, rows, strict=True)]
    assert absorbed.tolist() == [0.0] * (HORIZON + 1)


def test_agiles_discriminator_by_hand() -> None:
    made = agile()
    assert isinstance(made.reward, GoalState)

    def each(row: tuple[int, int, int, int], label: float) -> float:
        d = torch.sigmoid(made.reward.score(one(made, row).now)).item()  # type: ignore[operator]
        return -label * math.log(d) - (1 - label) * math.log(1 - d)

    wanted = (each(END, 0.95) + each(LATE, 0.95)) / 2 + each(ON, 0.05)
    measured = made.update_discriminator(batch(made, END, LATE), batch(made, ON))
    assert measured["d_loss"].item() == pytest.approx(wanted, abs=1e-5)


# Networks


def test_the_split_first_layer_is_the_layer_on_the_whole_input() -> None:
    """MLP([h^s; g; e^a]), with both heads apart and middle layers in between."""
    net = ActionValue(5, replace(sizes(HIDDEN), layers=3), HORIZON, heads=2).eval()
    stirred(net)
    at, embedding = (
        batch(learner(), ON, END, LATE).now,
        torch.randn(4, 5, generator=torch.Generator()),
    )
    row = torch.tensor([0, 0, 1, 2])
    whole = torch.cat([net.state.weight, net.action.weight], dim=1)
    for head in range(2):
        own = slice(head * HIDDEN, (head + 1) * HIDDEN)
        x = torch.cat([at.state[row], at.goal[row], embedding], dim=1)
        hidden = x @ whole[own].T + net.state.bias[own] + net.time.weight[at.time[row]][:, own]
        hidden = torch.relu(torch.relu(hidden) @ net.middle[0][head])
        wanted = hidden @ net.out[head] + net.bias[head]
        torch.testing.assert_close(net(at, row, embedding)[head], wanted)
