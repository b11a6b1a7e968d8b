"""Objects in space, and the panoramas drawn from them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgoalirl.errors import UserError
from langgoalirl.worlds.geometry import STEP as STEP_ANGLE
from langgoalirl.worlds.geometry import VIEWS, bearings, wrap
from langgoalirl.worlds.navgraph import House
from langgoalirl.worlds.object_words import ROOMS, common_words, words_of
from langgoalirl.worlds.objects import (
    FOCAL,
    OBJECT_WIDTH,
    USUAL_METRES,
    locate,
    object_panoramas,
    pixel_rays,
    place_objects,
    read_sightings,
    towards,
)
from langgoalirl.worlds.panorama import NEXT, SHAPE, SPACE, WORDS, draw
from langgoalirl.worlds.r2r import read_connectivity

LEVEL = 12  # the first of the level views: it looks along +y
NORTH, EAST, SOUTH, WEST = (LEVEL + turn for turn in (0, 3, 6, 9))
CENTRED = [300, 220, 40, 40]  # a box around the middle of a view

# Where the parts of a panorama begin, in the order in which they are laid side by side.
ROOM_HERE = WORDS
ROOM_NEXT = ROOM_HERE + len(ROOMS)
ROOM_SEEN = ROOM_NEXT + len(ROOMS)
SHAPE_HERE = ROOM_SEEN + len(ROOMS)
SHAPE_NEXT = SHAPE_HERE + SHAPE
STEP = SHAPE_NEXT + SHAPE
FREE = STEP + NEXT


def house(positions: Sequence[Sequence[float]], joined: list[tuple[int, int]]) -> House:
    """Viewpoints a, b, c… at these places; the joined ones see each other and no others do."""
    size = len(positions)
    edges = np.zeros((size, size), dtype=bool)
    for i, j in joined:
        edges[i, j] = edges[j, i] = True
    names = [chr(ord("a") + i) for i in range(size)]
    return House("h", names, np.array(positions), edges, edges.copy(), np.full(size, 1.5))


def write_boxes(folder: Path, content: dict[str, dict[str, tuple[str, list[int]]]]) -> Path:
    """Files of viewpoints: object -> (name, views that have a box of it in their middle)."""
    for viewpoint, objects in content.items():
        entries = {
            key: {"name": name, "visible_pos": views, "bbox2d": [CENTRED] * len(views)}
            for key, (name, views) in objects.items()
        }
        (folder / f"h_{viewpoint}.json").write_text(json.dumps({viewpoint: entries}))
    return folder


def panoramas(home: House, folder: Path) -> dict[str, np.ndarray]:
    return dict(object_panoramas([home], folder))


def test_rays_through_hand_computed_pixels() -> None:
    views = np.array([NORTH, EAST, 0, EAST, NORTH])
    x = np.array([320.0, 320.0, 320.0, 320.0 + FOCAL, 320.0])
    y = np.array([240.0, 240.0, 240.0, 240.0, 0.0])
    half = math.sqrt(0.5)
    expected: list[list[float]] = [
        [0, 1, 0],
        [1, 0, 0],
        [0, math.cos(math.pi / 6), -0.5],  # view 0 looks down by 30 degrees
        [half, -half, 0],  # 45 degrees to the right of east
        [0, math.cos(math.pi / 6), 0.5],  # the upper border is 30 degrees up
    ]
    np.testing.assert_allclose(pixel_rays(views, x, y), expected, atol=1e-12)


@given(
    view=st.integers(0, VIEWS - 1),
    x=st.floats(0, 640),
    y=st.floats(0, 480),
)
def test_rays_are_unit_vectors_within_half_a_view_diagonal(view: int, x: float, y: float) -> None:
    ray = pixel_rays(np.array([view]), np.array([x]), np.array([y]))[0]
    centre = pixel_rays(np.array([view]), np.array([320.0]), np.array([240.0]))[0]
    assert np.linalg.norm(ray) == pytest.approx(1)
    assert ray @ centre == pytest.approx(FOCAL / math.hypot(FOCAL, x - 320, y - 240))


def test_a_cut_box_hardly_turns_the_ray() -> None:
    views = np.array([NORTH, NORTH])
    boxes = np.array([[300.0, 220, 40, 40], [600.0, 220, 40, 40]])  # the second touches the border
    ray = towards(views, boxes, np.array([0, 0]))[0]
    assert 0 < math.atan2(ray[0], ray[1]) < math.radians(3)


def test_two_cameras_cross_where_the_object_is() -> None:
    origins = np.array([[0.0, 0, 0], [2.0, 0, 0]])
    half = math.sqrt(0.5)
    rays = np.array([[half, half, 0], [-half, half, 0]])
    point = locate(origins, rays, np.array([0, 0]), 1)[0]
    # The usual distance pulls from √2 m towards 2 m, with a weight of half a percent.
    np.testing.assert_allclose(point, [1, 1, 0], atol=0.01)


def test_one_ray_places_at_the_usual_distance_and_none_goes_wild() -> None:
    origins = np.array([[1.0, 1, 1], [0.0, 0, 0], [10.0, 0, 0]])
    slight = 0.05
    rays = np.array([[0.0, 1, 0], [slight, 1, 0], [-slight, 1, 0]])  # the last two meet 100 m away
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    points = locate(origins, rays, np.array([0, 1, 1]), 2)
    np.testing.assert_allclose(points[0], [1, 1 + USUAL_METRES, 1])
    assert np.linalg.norm(points[1] - origins[1:], axis=1).min() <= 4 + 1e-9


def test_an_object_without_boxes_is_guessed_on_the_side_where_nobody_else_names_it(
    tmp_path: Path,
) -> None:
    home = house([[0, 0, 0], [1.8, 0, 0]], [(0, 1)])
    write_boxes(tmp_path, {"a": {"1": ("bed", [])}, "b": {}})
    sightings = [read_sightings(tmp_path / f"h_{name}.json") for name in "ab"]
    objects = place_objects(home, sightings)
    assert objects.positions[0, 0] < -0.3
    assert objects.positions[0, 1] == pytest.approx(0, abs=1e-6)
    assert objects.spreads[0] > 0.5


def test_an_object_straight_ahead_lands_in_its_view(tmp_path: Path) -> None:
    home = house([[0, 0, 0], [0, -2, 0]], [(0, 1)])
    write_boxes(tmp_path, {"a": {"1": ("sofa", [NORTH])}, "b": {}})
    couch = panoramas(home, tmp_path)["h_a"][:, 0]  # the only word, so the first column
    assert couch.argmax() == NORTH
    assert couch[SOUTH] < 0.01 < couch[NORTH + 1] < couch[NORTH]
    assert couch[NORTH + 1] == pytest.approx(couch[LEVEL + 11])  # one view to either side


def test_an_object_is_seen_from_a_neighbour_but_not_through_a_wall(tmp_path: Path) -> None:
    boxes = {"a": {"1": ("bed", [EAST])}, "b": {}, "c": {}}
    places: list[list[float]] = [[0, 0, 0], [-2, 0, 0], [-2, 0.5, 0]]
    write_boxes(tmp_path, boxes)
    seen = panoramas(house(places, [(0, 1)]), tmp_path)
    assert seen["h_b"][:, 0].argmax() == EAST
    assert not seen["h_c"][:, :WORDS].any()  # c sees nobody


def test_rooms_are_told_here_through_the_next_step_and_in_sight(tmp_path: Path) -> None:
    home = house([[0, 0, 0], [4, 0, 0]], [(0, 1)])
    write_boxes(tmp_path, {"a": {}, "b": {"1": ("toilet", [EAST])}})
    seen = panoramas(home, tmp_path)
    bathroom = list(ROOMS).index("bathroom")
    here = seen["h_b"][:, ROOM_HERE + bathroom]
    assert here.min() == here.max() > 0.4
    assert seen["h_a"][:, ROOM_HERE + bathroom].max() < 0.05
    for part in (ROOM_NEXT, ROOM_SEEN):
        column = seen["h_a"][:, part + bathroom]
        assert column.argmax() == EAST
        assert column[WEST] < 0.05


def test_stairs_have_a_sign(tmp_path: Path) -> None:
    home = house([[0, 0, 0], [0, 2, 1]], [(0, 1)])
    write_boxes(tmp_path, {"a": {}, "b": {}})
    seen = panoramas(home, tmp_path)
    low, high = seen["h_a"], seen["h_b"]
    up, down = STEP + 2, STEP + 3
    assert low[NORTH, up] > 0.5 > 0 == low[NORTH, down]
    assert high[SOUTH, down] > 0.5 > 0 == high[SOUTH, up]
    assert low[0, SHAPE_HERE + 4] == 1  # something is up from here…
    assert low[0, SHAPE_HERE + 5] == 0  # …and nothing is down
    assert low[:, FREE + SPACE - 2].argmax() in (NORTH, NORTH + 12)  # what is higher, level or up


def test_free_space_of_a_straight_corridor(tmp_path: Path) -> None:
    home = house([[0, 0, 0], [0, 3, 0], [0, 6, 0]], [(0, 1), (1, 2)])
    write_boxes(tmp_path, {"a": {}, "b": {}, "c": {}})
    middle = panoramas(home, tmp_path)["h_b"]
    degree, _, doorway, corridor, up, down, dead_end = middle[0, SHAPE_HERE:SHAPE_NEXT]
    assert [degree, doorway, corridor] == pytest.approx([2 / 5, 1, 1])  # the ends are apart
    assert [up, down, dead_end] == [0, 0, 0]
    exists, far, _, _, new = middle[NORTH, STEP : STEP + NEXT]
    assert [exists, far, new] == pytest.approx([1, 1, 0])  # 3 m ahead, where it ends
    assert middle[NORTH, SHAPE_NEXT + 6] == 1
    wall, depth = FREE + 1, FREE + 2
    assert middle[NORTH, wall] == 0
    assert middle[EAST, wall] > 0.9
    assert middle[NORTH, depth] == pytest.approx(0.3)


def test_names_become_words() -> None:
    assert words_of("plant#pot") == ["plant"]
    assert words_of("Dining#Chairs") == ["dining", "chair"]
    assert words_of("wall#\\other#room") == ["wall"]
    assert words_of("glass#shelves") == ["glass", "shelf"]
    assert words_of("sofa") == words_of("couches") == ["couch"]
    assert words_of("unknown#/#other#room") == []


def test_commonest_words_first_and_ties_by_alphabet() -> None:
    names = ["vase", "lamp", "bench", "lamp#shade"]
    assert common_words(names, 3) == ["lamp", "bench", "curtain"]


def test_rooms_are_judged_by_words_that_names_can_give() -> None:
    words = {word for room in ROOMS.values() for word in room}
    assert [word for word in words if words_of(word) != [word]] == []


def test_two_builds_are_the_same_bytes_whichever_houses_are_asked_for(tmp_path: Path) -> None:
    home = house([[0, 0, 0], [0, 2, 0]], [(0, 1)])
    write_boxes(tmp_path, {"a": {"1": ("bed", [EAST]), "2": ("lamp", [3, 4])}, "b": {}})
    alone = panoramas(home, tmp_path)
    other = {"x": {"1": {"name": "lamp", "visible_pos": [1], "bbox2d": [CENTRED]}}}
    (tmp_path / "other_x.json").write_text(json.dumps(other))
    first, second = panoramas(home, tmp_path), panoramas(home, tmp_path)
    assert list(first) == ["h_a", "h_b"]
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)
    # One more lamp in the folder makes it the commonest word: the columns change places.
    np.testing.assert_array_equal(alone["h_a"][:, [1, 0]], first["h_a"][:, [0, 1]])


def entry(**changes: object) -> dict[str, object]:
    return {"name": "bed", "visible_pos": [14], "bbox2d": [CENTRED], **changes}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "field 'a' must hold the objects"),
        ({"b": {}}, "field 'a' must hold the objects"),
        ({"a": {"7": []}}, "object '7' must be"),
        ({"a": {"7": {"visible_pos": [], "bbox2d": []}}}, "'7', field 'name' must be"),
        ({"a": {"7": entry(name=3)}}, "'7', field 'name' must be"),
        ({"a": {"7": {"name": "bed", "bbox2d": []}}}, "field 'visible_pos' must be a list"),
        ({"a": {"7": {"name": "bed", "visible_pos": []}}}, "field 'bbox2d' must be a list"),
        ({"a": {"7": entry(visible_pos=[14, 15])}}, "as long as 'visible_pos' (2)"),
        ({"a": {"7": entry(visible_pos=[36])}}, "views 0 to 35"),
        ({"a": {"7": entry(visible_pos=[-1])}}, "views 0 to 35"),
        ({"a": {"7": entry(visible_pos=[1.5])}}, "views 0 to 35"),
        ({"a": {"7": entry(visible_pos=["x"])}}, "views 0 to 35"),
        ({"a": {"7": entry(bbox2d=[[1, 2, 3]])}}, "boxes of four numbers"),
        ({"a": {"7": entry(bbox2d=[[1, 2, 3, "4"]])}}, "boxes of four numbers"),
        ({"a": {"7": entry(bbox2d=[[1, 2, 3, None]])}}, "boxes of four numbers"),
        ({"a": {"7": entry(bbox2d=[[1, 2, 3, float("nan")]])}}, "boxes of four numbers"),
        ({"a": {"7": entry(bbox2d=[[1, 2, 3, 10**30]])}}, "boxes of four numbers"),
        ({"a": {"7": entry(bbox2d=[[600, 2, 60, 20]])}}, "inside 640 x 480"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, content: object, complaint: str) -> None:
    file = tmp_path / "h_a.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError) as error:
        panoramas(house([[0, 0, 0]], []), tmp_path)
    assert str(error.value).startswith(f"{file}: ")
    assert complaint in str(error.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(["name", "visible_pos", "bbox2d", "more"]), ANYTHING)


@given(FIELDS | st.just({}), st.none() | ANYTHING)
def test_whatever_a_file_of_boxes_holds_it_is_refused_or_usable(
    fields: dict[str, object], instead: object
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "h_a.json"
        value = {"a": {"7": entry(**fields)}} if instead is None else instead
        file.write_text(json.dumps(value))
        try:
            (seen,) = panoramas(house([[0, 0, 0]], []), file.parent).values()
        except UserError as error:
            seen, message = np.zeros(1), str(error)
        else:
            message = f"{file}: "
    assert np.isfinite(seen).all()
    assert message.startswith(f"{file}: ")
    assert "\n" not in message


def test_missing_files_are_counted(tmp_path: Path) -> None:
    write_boxes(tmp_path, {"b": {}})
    with pytest.raises(UserError, match=r"2 of 3 viewpoints have no file, h_a\.json for one"):
        panoramas(house([[0, 0, 0], [0, 1, 0], [0, 2, 0]], []), tmp_path)


def test_a_bare_house_has_panoramas_too(tmp_path: Path) -> None:
    write_boxes(tmp_path, {"a": {}})
    values = panoramas(house([[0, 0, 0]], []), tmp_path)["h_a"]
    assert values.shape == (VIEWS, OBJECT_WIDTH)
    assert values.dtype == np.float32
    assert np.flatnonzero(values.any(axis=0)).tolist() == [FREE + 1]  # walls all around
    assert (OBJECT_WIDTH + 4) % 8 == 0


def test_real_boxes_agree_with_the_places_found(r2r_dir: Path) -> None:
    folder = r2r_dir / "objects"
    errors, crossed, total = [], 0, 0
    for home in read_connectivity(r2r_dir / "connectivity")[:6]:
        sightings = [read_sightings(folder / f"{home.name}_{v}.json") for v in home.viewpoints]
        objects = place_objects(home, sightings)
        assert np.isfinite(objects.positions).all()
        keys = dict.fromkeys(s.object for row in sightings for s in row)
        number = {key: i for i, key in enumerate(keys)}
        boxed = [
            (i, number[s.object], s) for i, row in enumerate(sightings) for s in row if s.views.size
        ]
        owner = np.array([o for _, o, _ in boxed])
        rays = np.bincount(owner, minlength=len(number))
        crossed += (rays > 1).sum()
        total += (rays > 0).sum()
        for i, o, sighting in boxed:
            if rays[o] > 1:
                of = np.zeros(len(sighting.views), dtype=np.int64)
                ray = towards(sighting.views, sighting.boxes, of)[0]
                way = objects.positions[o] - home.positions[i]
                cosine = ray @ way / np.linalg.norm(way)
                errors.append(math.degrees(math.acos(min(1.0, cosine))))
    assert len(errors) > 500
    assert np.median(errors) < 1.5  # degrees
    assert np.percentile(errors, 90) < 6
    assert crossed / total > 0.3


def test_the_only_bed_of_a_real_house_is_in_the_views_towards_it(r2r_dir: Path) -> None:
    home = read_connectivity(r2r_dir / "connectivity")[0]
    folder = r2r_dir / "objects"
    sightings = [read_sightings(folder / f"{home.name}_{v}.json") for v in home.viewpoints]
    objects = place_objects(home, sightings)
    bed = objects.names.index("bed")
    assert objects.names.count("bed") == 1
    values = draw(home, objects, ["bed"])
    assert np.isfinite(values).all()
    heading, _, metres = bearings(home.positions, objects.positions[bed])
    sees = home.visible[:, objects.seen[:, bed]].any(axis=1) & (metres > 3) & (metres < 8)
    assert sees.sum() >= 5  # from other rooms: who has it in a box is within two metres
    view = values[sees, :, 0].reshape(-1, 3, 12).max(axis=1).argmax(axis=1)
    assert np.abs(wrap(view * STEP_ANGLE - heading[sees])).max() <= STEP_ANGLE / 2
