"""What is measured of generated instructions: likeness, variety, truth."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from langgoalirl.demonstrations import Batch, DemonstrationSet, observe_along
from langgoalirl.describe import (
    Spoken,
    bleu,
    examples,
    first_rows,
    followability,
    likeness,
    normal,
    references,
    self_bleu,
    speak,
    use_of_latent,
    variety,
)
from langgoalirl.language.vocabulary import END, PAD, Vocabulary
from langgoalirl.models.base_model import BaseModel
from langgoalirl.models.goal_generator import Encoded, GoalGenerator, kl_divergence
from langgoalirl.models.sizes import Sizes
from langgoalirl.models.speaking import Sampling, path_log_likelihood, sample_goals
from langgoalirl.objectives import walk_along
from langgoalirl.pretrain import initialised
from langgoalirl.worlds.houses.world import Houses
from langgoalirl.worlds.types import NO_ACTION, STOP, Observation, Split

torch.set_num_threads(1)

SIZES = Sizes(hidden=8, word=4, angle=2, latent=3)
WORLD = Houses(seed=0, houses=1, unseen=1, routes=8)
SPLIT = WORLD.split("train")
VOCABULARY = Vocabulary.build(SPLIT.tasks.goals, 1)
DATA = DemonstrationSet(WORLD, SPLIT, VOCABULARY, 20)
ROUTES = len(SPLIT) // 3
ROUTE_ROWS = torch.arange(0, len(SPLIT), 3)


def base_model() -> BaseModel:
    model: BaseModel = initialised(1, BaseModel, WORLD.feature_width, len(VOCABULARY), SIZES)
    return model.eval()


def goal_generator() -> GoalGenerator:
    model: GoalGenerator = initialised(
        2, GoalGenerator, WORLD.feature_width, len(VOCABULARY), SIZES
    )
    return model.eval()


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def told(per_route: list[list[str]]) -> Spoken:
    """As if the generator had said this."""
    every = VOCABULARY.encode([text for group in per_route for text in group], 200)
    words = every.view(len(per_route), len(per_route[0]), -1)
    best = torch.zeros(len(per_route), dtype=torch.long)
    return Spoken(ROUTE_ROWS[: len(per_route)], words, best)


# Likeness


def test_saying_what_a_human_said_is_full_marks() -> None:
    said = ["turn left and stop at once", "go up the stairs"]
    human = [["walk", said[0], "go on and on"], [said[1]]]  # some routes have more references
    assert bleu(said, human) == pytest.approx({"bleu": 1, "p1": 1, "p2": 1, "p3": 1})


def test_precisions_by_hand() -> None:
    """A word counts as often as one reference has it; pairs and triples likewise. Four-grams: 1/3.

    Said and heard are equally long, so that there is no brevity penalty.
    """
    said, human = "go left go left stop now", ["go left go right stop now", "left left go up it is"]
    # Single words: go 2, left 2 (both from the second), stop 1, now 1.
    # Pairs: (go left) once of two, (left go), (stop now); (left stop) nowhere.
    # Triples: (go left go) alone of four. Quadruples: none of three, smoothed to 1/2 of one.
    found = bleu([said], [human])
    assert found["p1"] == pytest.approx(6 / 6)
    assert found["p2"] == pytest.approx(3 / 5)
    assert found["p3"] == pytest.approx(1 / 4)
    assert found["bleu"] == pytest.approx((1 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_short_sentences_are_punished() -> None:
    """Half as long as the one reference: exp(1 - 8/4)."""
    found = bleu(["a b c d"], [["a b c d e f g h"]])
    assert found == pytest.approx({"bleu": math.exp(-1), "p1": 1, "p2": 1, "p3": 1})


def test_case_and_spaces_do_not_count() -> None:
    assert normal("Turn  LEFT, don't stop.") == "turn left , don't stop ."
    assert normal(VOCABULARY.decode(DATA.words[:1])[0]) == " ".join(
        VOCABULARY.words[i] for i in DATA.words[0].tolist() if i not in (PAD, END)
    )


def test_references_are_the_routes_own() -> None:
    found = references(SPLIT, ROUTE_ROWS[[2, 0]])
    assert found == [
        [normal(goal) for goal in SPLIT.tasks.goals[6:9]],
        [normal(goal) for goal in SPLIT.tasks.goals[0:3]],
    ]


def test_likeness_is_measured_against_the_routes_own_sentences() -> None:
    human = [SPLIT.tasks.goals[3 * i : 3 * i + 3] for i in range(ROUTES)]
    own = likeness(told(human), VOCABULARY, SPLIT)
    assert own["bleu"] == pytest.approx(1)
    other = likeness(told(human[1:] + human[:1]), VOCABULARY, SPLIT)
    assert other["bleu"] < 0.7
    assert other["p1"] < 1


# Variety


def test_self_bleu() -> None:
    same, other = "go to the red door", "turn around and enter there"
    assert self_bleu([[same] * 3, [other] * 3]) == pytest.approx(1)
    assert self_bleu([["a b c d e", "f g h i j", "k l m n o"]]) == pytest.approx(0, abs=0.05)
    mixed = self_bleu([[same, same, other]])
    assert 0.3 < mixed < 1
    assert self_bleu([[same, same, other, "a fourth", "is left out"]]) == mixed


def test_variety_counts_distinct_sentences() -> None:
    human = [SPLIT.tasks.goals[3 * i : 3 * i + 3] for i in range(ROUTES)]
    groups = [[a, a, b, c] for a, b, c in human[:1]] + [[a] * 4 for a, _, _ in human[1:]]
    found = variety(told(groups), VOCABULARY, SPLIT)
    assert found["distinct"] == pytest.approx((3 + ROUTES - 1) / ROUTES)
    assert 0.9 < found["self_bleu"] < 1
    assert found["self_bleu_human"] == pytest.approx(self_bleu(references(SPLIT, ROUTE_ROWS)))
    assert variety(told(human), VOCABULARY, SPLIT)["self_bleu"] == pytest.approx(
        found["self_bleu_human"]
    )


# Sampling and choosing


def test_the_first_row_of_each_route() -> None:
    assert first_rows(torch.tensor([0, 0, 1, 1, 1, 2])).tolist() == [0, 2, 5]
    assert first_rows(torch.tensor([4, 2, 4, 2, 0])).tolist() == [4, 1, 0]
    assert first_rows(SPLIT.tasks.route).tolist() == ROUTE_ROWS.tolist()


def likelihood_along(base: BaseModel, batch: Batch, words: Tensor) -> Tensor:
    seen = observe_along(WORLD, batch, torch.float32)
    state = base.state.sequence(seen.views, seen.facing)
    return path_log_likelihood(base, state, seen, batch.actions, words)


def test_path_likelihood_is_the_base_models() -> None:
    """Summed by hand from the logits that `forward` gives for each (path, sentence)."""
    base, batch = base_model(), DATA.rows(ROUTE_ROWS)
    words = torch.stack([DATA.words[ROUTE_ROWS + i] for i in (2, 0, 1)], dim=1)
    found = likelihood_along(base, batch, words)
    assert found.shape == (ROUTES, 3)
    for row in range(ROUTES):
        single = DATA.rows(ROUTE_ROWS[row : row + 1])
        seen = observe_along(WORLD, single, torch.float32)
        for sample in range(3):
            logits = base(words[row : row + 1, sample], seen)[0]
            total = torch.tensor(0.0)
            for t, action in enumerate(single.actions[0].tolist()):
                total += logits[t].masked_fill(~seen.mask[0, t], -torch.inf).log_softmax(0)[action]
            torch.testing.assert_close(found[row, sample], total)
    assert bool((found.std(1) > 0).all())


def test_speaking_chooses_what_the_base_model_follows_best() -> None:
    model, base = goal_generator(), base_model()
    how = Sampling(samples=4, limit=9, temperature=1.0)
    spoken = speak(WORLD, DATA, model, base, how, seed=3)
    assert spoken.words.shape == (ROUTES, 4, 10)
    assert (spoken.words == END).sum(-1).tolist() == [[1] * 4] * ROUTES
    assert spoken.rows.tolist() == ROUTE_ROWS.tolist()
    scores = likelihood_along(base, DATA.rows(spoken.rows), spoken.words)
    assert torch.equal(spoken.best, scores.argmax(1))
    assert len(set(spoken.best.tolist())) > 1  # else any constant would have passed

    again = speak(WORLD, DATA, model, base, how, seed=3)
    assert torch.equal(again.words, spoken.words)
    other = speak(WORLD, DATA, model, base, how, seed=4)
    assert not torch.equal(other.words, spoken.words)


def test_samples_of_a_route_stand_together() -> None:
    """Each says what its own trajectory and its own z would say alone."""
    model = goal_generator()
    encoded = model.encode(walk_along(WORLD, DATA.rows(ROUTE_ROWS)))
    words = sample_goals(model, encoded, Sampling(samples=3, limit=9), draw(0))
    assert words.shape[:2] == (ROUTES, 3)
    z = model.prior_of(encoded.repeat(3)).sample(draw(0)).view(ROUTES, 3, -1)
    for row in range(ROUTES):
        alone = Encoded(*(part[row : row + 1] for part in encoded))
        for sample in range(3):
            wanted = model.generate(alone, z[row, sample : sample + 1], 9)[0]
            assert torch.equal(words[row, sample, : len(wanted)], wanted)


def test_the_walk_is_the_demonstration() -> None:
    batch = DATA.rows(ROUTE_ROWS)
    walk = walk_along(WORLD, batch)
    assert torch.equal(walk.actions, batch.actions)
    assert torch.equal(walk.lengths, (batch.actions != NO_ACTION).sum(1))
    wanted = WORLD.observe(batch.states[:, 1])
    assert all(torch.equal(a[:, 1], b) for a, b in zip(walk.seen, wanted, strict=True))


def test_use_of_the_latent() -> None:
    """The KL is the model's own; a z that nothing depends on costs nothing to exchange."""
    model = goal_generator()
    found = use_of_latent(WORLD, DATA, model, seed=0)
    encoded = model.encode(walk_along(WORLD, DATA.rows(torch.arange(len(DATA)))))
    kl = kl_divergence(model.posterior_of(encoded, DATA.words), model.prior_of(encoded))
    assert found["kl"] == pytest.approx(kl.mean().item(), rel=1e-4)
    z = torch.zeros(len(DATA), SIZES.latent)
    silent = -model.log_likelihood(encoded, DATA.words, z).mean().item()
    assert found["reconstruction"] == pytest.approx(silent, rel=0.1)
    assert found["shuffled_z_costs"] != 0
    weights = model.state_dict()
    weights["word_lstm.weight_ih_l0"][:, SIZES.word :] = 0
    weights["step_query.weight"][:, SIZES.hidden :] = 0
    weights["choose.0.weight"][:, 2 * SIZES.hidden :] = 0
    deaf = use_of_latent(WORLD, DATA, model, seed=0)
    assert deaf["shuffled_z_costs"] == pytest.approx(0, abs=1e-4)
    assert deaf["reconstruction"] == pytest.approx(silent, rel=1e-4)


# Truth


class Obedient:
    """Walks the demonstration of whichever route's words it hears; stops at once at others'."""

    def begin(self, words: Tensor) -> tuple[int, Tensor]:
        assert SPLIT.demonstrations is not None
        known = {normal(text)[:150]: i for i, text in enumerate(SPLIT.tasks.goals)}
        heard = [known.get(normal(text)[:150], -1) for text in VOCABULARY.decode(words)]
        stay = torch.zeros(1, SPLIT.demonstrations.actions.shape[1], dtype=torch.long)
        return 0, torch.cat([SPLIT.demonstrations.actions.clamp_min(STOP), stay])[heard]

    def act(
        self, seen: Observation, memory: tuple[int, Tensor]
    ) -> tuple[Tensor, tuple[int, Tensor]]:
        step, actions = memory
        chosen = torch.nn.functional.one_hot(actions[:, step], seen.mask.shape[1])
        return 5.0 * chosen, (step + 1, actions)


def test_followability_by_hand() -> None:
    """All three samples are true for the first two routes, for the others all but the first; the
    selected ones are true."""
    human = [SPLIT.tasks.goals[3 * i : 3 * i + 3] for i in range(ROUTES)]
    groups = [["stop", *group[1:]] for group in human]
    groups[0], groups[1] = human[0], human[1]
    spoken = told(groups)
    spoken = Spoken(spoken.rows, spoken.words, spoken.best + 2)
    found = followability(WORLD, Obedient(), VOCABULARY, spoken, SPLIT)
    assert found == pytest.approx(
        {
            "success_human": 1,
            "success_single": (2 / ROUTES + 2) / 3,
            "success_selected": 1,
            "followability_single": (2 / ROUTES + 2) / 3,
            "followability_selected": 1,
        }
    )


def test_followability_needs_annotated_paths() -> None:
    bare = Split("test", SPLIT.tasks, None, None)
    with pytest.raises(ValueError, match="annotated paths"):
        followability(WORLD, Obedient(), VOCABULARY, told([["stop"]]), bare)


def test_examples_are_spread_over_the_split() -> None:
    said = [["left then stop"], *[["right then stop"]] * (ROUTES - 1)]
    found = examples(told(said), VOCABULARY, SPLIT, 2)
    assert [one["id"] for one in found] == [SPLIT.tasks.ids[0], SPLIT.tasks.ids[-3]]
    assert found[0]["human"] == SPLIT.tasks.goals[0].strip()
    assert normal(found[0]["generated"]) == said[0][0]
    assert len(examples(told(said), VOCABULARY, SPLIT, 1000)) == ROUTES
