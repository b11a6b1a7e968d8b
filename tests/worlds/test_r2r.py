"""Room-to-Room's files: what is read from good ones, what is said of bad ones, and agreement with
what the original simulator answers."""

from __future__ import annotations

import json
import lzma
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from langgoalirl.errors import UserError
from langgoalirl.submission import write_submission
from langgoalirl.worlds.features import write_cache
from langgoalirl.worlds.geometry import HALF_WIDTH, VIEW_ELEVATIONS, VIEW_HEADINGS, wrap
from langgoalirl.worlds.navgraph import NavGraph
from langgoalirl.worlds.r2r import R2R, read_connectivity, read_split
from langgoalirl.worlds.types import NO_ACTION, STOP


def graph() -> list[dict[str, Any]]:
    """a, b and c in a row going north, 2 m apart; x lies between b and c but is not included."""
    names = ["a", "b", "x", "c"]
    joined = {("a", "b"), ("b", "c"), ("b", "x"), ("x", "c")}
    return [
        {
            "image_id": name,
            "pose": [1, 0, 0, 0.5, 0, 1, 0, 2.0 * "abc".find(name), 0, 0, 1, 1.5, 0, 0, 0, 1],
            "included": name != "x",
            "visible": [True, True, False, other == "b"],
            "unobstructed": [{(name, to), (to, name)} & joined != set() for to in names],
            "height": 1.25 + i,
        }
        for i, (name, other) in enumerate(zip(names, "abab", strict=True))
    ]


def routes() -> list[dict[str, Any]]:
    return [
        {
            "path_id": 7,
            "scan": "hut",
            "heading": 0.3,
            "path": ["a", "b", "c"],
            "instructions": ["Go on.", "Walk to the end.", "Leave.\n"],
            "distance": 4.0,
        },
        {
            "path_id": 9,
            "scan": "hut",
            "heading": 3.2,
            "path": ["c", "b"],
            "instructions": ["Back."],
            "distance": 2.0,
        },
    ]


def saved(folder: Path, graphs: Any = None, paths: Any = None) -> Path:
    """A folder in the upstream layout with one house and one split."""
    contents = {
        "connectivity/hut_connectivity.json": graph() if graphs is None else graphs,
        "annotations/R2R_tiny.json": routes() if paths is None else paths,
    }
    for name, content in contents.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_a_house_is_its_included_viewpoints(tmp_path: Path) -> None:
    (house,) = read_connectivity(saved(tmp_path) / "connectivity")
    assert (house.name, house.viewpoints) == ("hut", ["a", "b", "c"])
    assert house.positions.tolist() == [[0.5, 0, 1.5], [0.5, 2, 1.5], [0.5, 4, 1.5]]
    assert house.heights.tolist() == [1.25, 2.25, 4.25]
    assert house.edges.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert house.visible.tolist() == [[0, 1, 0], [1, 0, 1], [1, 1, 0]]  # nobody sees himself


def test_houses_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        (tmp_path / f"{name}_connectivity.json").write_text(json.dumps(graph()))
    (tmp_path / "scans.txt").write_text("no graph")
    assert [house.name for house in read_connectivity(tmp_path)] == ["a", "b", "c"]


def test_a_split_has_a_row_for_each_instruction(tmp_path: Path) -> None:
    split = R2R(saved(tmp_path), "none").split("tiny")
    assert split.name == "tiny"
    assert split.tasks.ids == ["7_0", "7_1", "7_2", "9_0"]
    assert split.tasks.goals == ["Go on.", "Walk to the end.", "Leave.\n", "Back."]
    assert split.tasks.start.tolist() == [13, 13, 13, 2 * 36 + 18]
    assert split.tasks.route.tolist() == [0, 0, 0, 1]
    assert split.demonstrations is not None
    there, back = [1, 1, STOP], [1, STOP, NO_ACTION]
    # From b, the way on to c (view 0) comes before the way back to a (view 5 is the first).
    assert split.demonstrations.actions.tolist() == [there, there, there, back]
    assert split.references is not None
    assert split.references.paths.tolist() == [[0, 1, 2]] * 3 + [[2, 1, 1]]
    assert split.references.lengths.tolist() == [3, 3, 3, 2]
    assert split.references.goals.tolist() == [2, 2, 2, 1]


def test_where_only_starts_are_given_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    entries = routes()
    for entry in entries:
        del entry["path"][1:], entry["distance"]
    split = R2R(saved(tmp_path, paths=entries), "none").split("tiny")
    assert split.tasks.start.tolist() == [13, 13, 13, 2 * 36 + 18]
    assert (split.demonstrations, split.references) == (None, None)


@pytest.mark.parametrize("name", ["tinny", "", "..", "../annotations/R2R_tiny", "x" * 300, "a\0"])
def test_a_split_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"no split .*tiny"):
        R2R(saved(tmp_path), "none").split(name)


# Faults


def assert_sentence(error: UserError, file: Path) -> None:
    """One sentence that begins with the file."""
    assert str(error).startswith(f"{file}: ")
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def changed(value: Any, place: tuple, new: Any) -> Any:
    """The value with what is at a place replaced, or deleted if `new` is Ellipsis."""
    node = value
    for key in place[:-1]:
        node = node[key]
    if new is ...:
        del node[place[-1]]
    else:
        node[place[-1]] = new
    return value


DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
HUGE = 10**4000  # an integer that is no float


def short(value: Any) -> str:
    """A test's name need not hold all of its data."""
    return str(value)[:20]


GRAPH_FAULTS = [
    ((1, "image_id"), ..., "viewpoint 1, field 'image_id'"),
    ((1, "image_id"), "a", "field 'image_id' names a viewpoint twice"),
    ((1, "image_id"), "two\nlines", "field 'image_id'"),
    ((0, "included"), 1, "viewpoint 0, field 'included'"),
    ((3, "unobstructed"), [True] * 3, "viewpoint 3, field 'unobstructed'"),
    ((3, "visible"), [0, 1, 0, 1], "viewpoint 3, field 'visible'"),
    ((0, "pose"), [0.0] * 15, "viewpoint 0, field 'pose'"),
    ((0, "pose", 3), True, "viewpoint 0, field 'pose'"),
    ((0, "pose", 3), math.nan, "viewpoint 0, field 'pose'"),
    ((0, "pose", 3), HUGE, "viewpoint 0, field 'pose'"),
    ((0, "pose", 3), 1e300, "viewpoint 0, field 'pose'"),
    ((0, "height"), "1.5", "viewpoint 0, field 'height'"),
    ((0, "height"), -math.inf, "viewpoint 0, field 'height'"),
    ((2,), None, "viewpoint 2 is not an object"),
    ((2,), DEEP, "viewpoint 2 is not an object"),
]


@pytest.mark.parametrize(("place", "value", "reason"), GRAPH_FAULTS, ids=short)
def test_a_bad_graph_is_one_sentence(tmp_path: Path, place: tuple, value: Any, reason: str) -> None:
    folder = saved(tmp_path, graphs=changed(graph(), place, value)) / "connectivity"
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        read_connectivity(folder)
    assert_sentence(caught.value, folder / "hut_connectivity.json")


PATH_FAULTS = [
    ((0, "path_id"), "7", "path 0, field 'path_id' must be a whole number"),
    ((0, "path_id"), True, "path 0, field 'path_id' must be a whole number"),
    ((1, "path_id"), 7, "path 1, field 'path_id' repeats 7"),
    ((1, "heading"), ..., "path 1, field 'heading'"),
    ((1, "heading"), False, "path 1, field 'heading'"),
    ((1, "heading"), math.nan, "path 1, field 'heading'"),
    ((1, "heading"), HUGE, "path 1, field 'heading'"),
    ((0, "instructions"), [], "path 0, field 'instructions'"),
    ((0, "instructions"), "Go.", "path 0, field 'instructions'"),
    ((0, "instructions", 2), " \n", "path 0, field 'instructions' is empty at 2"),
    ((0, "instructions", 1), "go " * 500, "field 'instructions' has 500 words at 1"),
    ((0, "instructions", 1), "half \ud83d", "path 0, field 'instructions'"),
    ((0, "scan"), "hat", "path 0, field 'scan' names 'hat', whose graph is missing"),
    ((0, "scan"), DEEP, "path 0, field 'scan'"),
    ((0, "path"), [], "path 0, field 'path'"),
    ((0, "path", 1), "x", "path 0, field 'path' goes through 'x'"),
    ((0, "path", 1), DEEP, "path 0, field 'path'"),
    ((0, "path", 1), ..., "path 0, field 'path' steps from 'a' to"),
    ((0, "path", 1), "a", "path 0, field 'path' steps from 'a' to"),
    ((1,), [7], "path 1 is not an object"),
]


@pytest.mark.parametrize(("place", "value", "reason"), PATH_FAULTS, ids=short)
def test_a_bad_path_is_one_sentence(tmp_path: Path, place: tuple, value: Any, reason: str) -> None:
    world = R2R(saved(tmp_path, paths=changed(routes(), place, value)), "none")
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        world.split("tiny")
    assert_sentence(caught.value, tmp_path / "annotations/R2R_tiny.json")


WHOLE = json.dumps(routes())
NO_DATA: list[tuple[bytes, str]] = [
    (b"", "not valid JSON at line 1"),
    (WHOLE[:-1].encode(), "not valid JSON at line 1"),
    (WHOLE.replace("Go on", "Gö on").encode("latin-1"), "not UTF-8 text"),
    (WHOLE.encode("utf-16"), "not UTF-8 text"),
    (b"[" * 100_000, "no data of ours"),
    (b"[" + b"9" * 5000 + b"]", "no data of ours"),
    (b"{}", "a list"),
    (b"[]", "a list"),
    (b"null", "a list"),
]


@pytest.mark.parametrize(("content", "reason"), NO_DATA, ids=short)
def test_what_is_no_data_is_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    world = R2R(saved(tmp_path), "none")
    paths = tmp_path / "annotations/R2R_tiny.json"
    graphs = tmp_path / "connectivity/hut_connectivity.json"
    for file in (paths, graphs):
        file.write_bytes(content)
        with pytest.raises(UserError, match=reason) as caught:
            world.split("tiny") if file == paths else read_connectivity(graphs.parent)
        assert_sentence(caught.value, file)


def test_a_folder_without_annotations(tmp_path: Path) -> None:
    (saved(tmp_path) / "annotations/R2R_tiny.json").unlink()
    with pytest.raises(UserError, match="data fetch r2r"):
        R2R(tmp_path, "none").split("tiny")


def test_a_folder_without_graphs(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="data fetch r2r"):
            read_connectivity(folder)


@pytest.mark.parametrize("features", ["nowhere", "", ".", "x" * 300])
def test_features_that_are_not_there(tmp_path: Path, features: str) -> None:
    with pytest.raises(UserError, match=r"world\.features: .*data prepare"):
        R2R(saved(tmp_path), features)
    with pytest.raises(UserError, match="no object boxes"):
        R2R(tmp_path, "objects")


def test_features_that_lack_a_viewpoint_name_their_file(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_cache(cache, 8, [("hut_a", np.zeros((36, 8), dtype=np.float32))], "x")
    with pytest.raises(UserError, match=r"world\.features: '.*cache': .*'b' has no image features"):
        R2R(saved(tmp_path), str(cache))


# Anything at all in place of anything

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 7, HUGE, -HUGE, 1e300, "a", "b", "x", "hut", ""])
    | st.floats()
    | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, above: tuple = ()) -> list[tuple]:
    """The way to each part of a JSON value."""
    if not isinstance(value, dict | list):
        return [above]
    children = value.items() if isinstance(value, dict) else enumerate(value)
    below = [place for key, child in children for place in places(child, (*above, key))]
    return [above, *below] if above else below


ANYTHING = st.just(...) | ANY_JSON


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("r2r"))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(places(routes())), ANYTHING)
def test_whatever_a_split_holds_it_is_refused_or_usable(
    folder: Path, place: tuple, value: Any
) -> None:
    world = R2R(saved(folder, paths=changed(routes(), place, value)), "none")
    try:
        split = world.split("tiny")
    except UserError as error:
        assert_sentence(error, folder / "annotations/R2R_tiny.json")
        return
    assert len(set(split.tasks.ids)) == len(split) == len(split.tasks.goals)
    assert all(goal.strip() and goal.encode() for goal in split.tasks.goals)
    states = world.reset(split.tasks)[:, None]
    write_submission(folder / "out.json", world, split, states, torch.ones(len(split)).long())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(places(graph())), ANYTHING)
def test_whatever_a_graph_holds_it_is_refused_or_usable(
    folder: Path, place: tuple, value: Any
) -> None:
    saved(folder, graphs=changed(graph(), place, value))
    try:
        world = R2R(folder, "none")
    except UserError as error:
        assert_sentence(error, folder / "connectivity/hut_connectivity.json")
        return
    n = len(world.houses[0])
    assert not world.observe(torch.arange(n * 36)).actions.isnan().any()
    every = torch.arange(n)
    assert not world.distance(every[:, None], every[None]).isnan().any()


@given(st.integers(0, len(WHOLE) - 1))
@settings(max_examples=30, deadline=None)
def test_a_file_cut_anywhere_is_refused(folder: Path, end: int) -> None:
    world = R2R(saved(folder, paths=WHOLE[:end]), "none")
    with pytest.raises(UserError, match="not valid JSON"):
        world.split("tiny")


# What the original simulator answers


@pytest.fixture(scope="module")
def real(r2r_dir: Path) -> NavGraph:
    return R2R(r2r_dir, "none")


def answers(file: Path) -> list[dict[str, Any]]:
    """The lines of a dump behind the one that names its columns."""
    with lzma.open(file, "rt") as lines:
        next(lines)
        return [json.loads(line) for line in lines]


def test_candidates_of_all_viewpoints(real: NavGraph, oracle_dir: Path) -> None:
    """Which neighbours, in which view, in which order, and where."""
    dump = answers(oracle_dir / "adjacency.jsonl.xz")
    ours = {key: real.houses[real.house_index[key[0]]].candidates for key in real.index}
    assert len(dump) == len(ours) == 10_567
    names = [name for house in real.houses for name in house.viewpoints]
    theirs, found = [], []
    for line in dump:
        scan, viewpoint = line["scan"], line["viewpoint"]
        first = int(real.first[real.house_index[scan]])
        here = ours[scan, viewpoint][real.index[scan, viewpoint] - first]
        assert [names[first + i] for i in here.target] == [row[0] for row in line["candidates"]]
        assert here.view.tolist() == [row[1] for row in line["candidates"]]
        theirs += [[row[2], row[3], row[4], row[6]] for row in line["candidates"]]
        found.append(np.stack([here.heading, here.elevation, here.offset, here.metres], axis=1))
    assert len(theirs) == int(real.mask[:, 1:].sum()) == 42_936
    difference = np.abs(np.concatenate(found) - np.array(theirs)).max(axis=0)
    assert difference[:3].max() < 1e-6
    assert difference[3] < 1e-5
    assert int((~real.mask[:, 1:]).all(1).sum()) == 8
    assert real.action_limit == 14


def test_observations_of_two_thousand_states(real: NavGraph, oracle_dir: Path) -> None:
    """The candidates' directions relative to the agent, up to the rounding of half precision."""
    dump = answers(oracle_dir / "states.jsonl.xz")
    assert len(dump) == 2000
    viewpoint = torch.tensor([real.index[line["scan"], line["viewpoint"]] for line in dump])
    view = torch.tensor([line["viewIndex"] for line in dump])
    seen = real.observe(viewpoint * 36 + view)

    names = [name for house in real.houses for name in house.viewpoints]
    expected = np.zeros((2000, 14, 4))
    for i, line in enumerate(dump):
        rows = line["candidates"]
        k = len(rows)
        assert int(seen.mask[i].sum()) == k + 1
        assert seen.mask[i, : k + 1].all()
        assert real.through[viewpoint[i], 1 : k + 1].tolist() == [row[1] for row in rows]
        leads_to = real.neighbour[viewpoint[i], 1 : k + 1].tolist()
        assert [names[there] for there in leads_to] == [row[0] for row in rows]
        for j, row in enumerate(rows, start=1):
            turn, rise = row[2] - line["heading"], row[3]
            expected[i, j] = [math.cos(turn), math.sin(turn), math.cos(rise), math.sin(rise)]
    np.testing.assert_allclose(seen.actions[..., -4:].double().numpy(), expected, atol=5e-4)
    own = np.array([[line["heading"], line["elevation"]] for line in dump])
    facing = np.concatenate([np.cos(own[:, :1]), np.sin(own[:, :1])], 1)
    np.testing.assert_allclose(seen.facing[:, :2].numpy(), facing, atol=1e-6)
    np.testing.assert_allclose(seen.facing[:, 3].numpy(), np.sin(own[:, 1]), atol=1e-6)


def test_two_thousand_states_to_a_millionth_of_a_radian(real: NavGraph, oracle_dir: Path) -> None:
    """What the simulator offers from a state, and what lies within the view that it looks at."""
    theirs: list[list[float]] = []
    ours: list[NDArray] = []
    for line in answers(oracle_dir / "states.jsonl.xz"):
        house = real.house(line["scan"])
        place = house.viewpoints.index(line["viewpoint"])
        here = house.candidates[place]
        offered = line["candidates"]
        assert [house.viewpoints[i] for i in here.target] == [row[0] for row in offered]
        assert here.view.tolist() == [row[1] for row in offered]
        ours.append(np.stack([here.heading, here.elevation, here.metres], axis=1))
        theirs += [[row[2], row[3], row[6]] for row in offered]

        view = line["viewIndex"]
        aside = wrap(here.heading - VIEW_HEADINGS[view])
        above = here.elevation - VIEW_ELEVATIONS[view]
        near = [i for i in np.hypot(aside, above).argsort() if abs(aside[i]) <= HALF_WIDTH]
        (stay, *within) = line["navigableLocations"]
        assert stay[0] == line["viewpoint"]
        assert [house.viewpoints[i] for i in here.target[near]] == [row[0] for row in within]
        ours.append(np.stack([aside[near], above[near], here.metres[near]], axis=1))
        theirs += [row[1:] for row in within]
    difference = np.abs(np.concatenate(ours) - np.array(theirs)).max(axis=0)
    assert difference[:2].max() < 1e-6
    assert difference[2] < 1e-5


def test_in_single_precision_directions_agree_to_seven_digits(
    real: NavGraph, oracle_dir: Path
) -> None:
    rows = torch.zeros(10_567, dtype=torch.long)
    exact = NavGraph(real.houses, torch.zeros(2, 36, 4), rows)
    dump = answers(oracle_dir / "states.jsonl.xz")
    state = [real.index[line["scan"], line["viewpoint"]] * 36 + line["viewIndex"] for line in dump]
    seen = exact.observe(torch.tensor(state)).actions
    for i, line in enumerate(dump):
        turn = torch.tensor([row[2] - line["heading"] for row in line["candidates"]])
        rise = torch.tensor([row[3] for row in line["candidates"]])
        expected = torch.stack([turn.cos(), turn.sin(), rise.cos(), rise.sin()], dim=-1)
        torch.testing.assert_close(seen[i, 1 : 1 + len(turn)], expected, rtol=0, atol=2e-6)


def test_the_annotated_paths_of_val_seen(real: NavGraph, r2r_dir: Path) -> None:
    split = read_split(real, r2r_dir / "annotations/R2R_val_seen.json")
    assert (len(split), len(split.tasks.route.unique())) == (1021, 340)
    assert split.references is not None
    assert split.demonstrations is not None
    state = real.reset(split.tasks)
    for action in split.demonstrations.actions.clamp(min=STOP).T:
        state = real.step(state, action)
    assert (state // 36).equal(split.references.goals)
