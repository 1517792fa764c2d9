"""Where the names of lines are put."""

from itertools import combinations

import numpy as np

from citer.report.names import Box, Name, place

INSIDE = Box(0, 0, 400, 300)
WIDTH, HEIGHT = 60.0, 12.0


def name(*corners: tuple[float, float]) -> Name:
    return Name(np.array(corners, float), WIDTH, HEIGHT)


def covers(centre: tuple[float, float], point: tuple[float, float]) -> bool:
    x, y = (abs(a - b) for a, b in zip(centre, point, strict=True))
    return x < WIDTH / 2 and y < HEIGHT / 2


def test_a_name_stands_beside_its_line_and_inside() -> None:
    [(x, y)] = place([name((10, 150), (390, 150))], INSIDE)
    assert HEIGHT / 2 <= abs(y - 150) <= 2 * HEIGHT
    assert WIDTH / 2 <= x <= 400 - WIDTH / 2


def test_names_of_a_bundle_of_lines_cover_neither_each_other_nor_much_else() -> None:
    lines = [name((10, 20 + 4 * n), (200, 150), (390, 200 + 9 * n)) for n in range(10)]
    centres = place(lines, INSIDE)
    for (x, y), (u, v) in combinations(centres, 2):
        assert abs(x - u) >= WIDTH or abs(y - v) >= HEIGHT


def test_a_name_goes_where_its_line_runs_alone() -> None:
    """Both lines share their left half. The second turns off in the middle."""
    straight, turning = name((10, 150), (390, 150)), name((10, 150), (200, 150), (390, 290))
    for x, _ in place([turning, straight], INSIDE):
        assert x + WIDTH / 2 > 200


def test_a_line_that_is_nowhere_inside_has_no_name() -> None:
    assert place([name((10, 400), (390, 400))], INSIDE) == [None]


def test_a_name_does_not_cover_a_point_of_another_line() -> None:
    point = (200.0, 160.0)
    [centre, _] = place([name((10, 150), (390, 150)), name(point)], INSIDE)
    assert not covers(centre, point)


def test_a_name_on_many_lines_is_better_than_one_on_another_name() -> None:
    """Two points share a place. Above them there is room for one name, below there are lines."""
    point, below = name((100, 200)), [name((0, 208 + n / 2), (200, 208 + n / 2)) for n in range(24)]
    first, second, *_ = place([point, point, *below], Box(60, 180, 140, 300))
    assert first is not None
    assert second is not None
    assert abs(first[1] - second[1]) >= HEIGHT


def test_a_point_chooses_its_place_before_lines() -> None:
    """The line can be named anywhere, the point only where the first name would be."""
    line, point = name((200, 50), (200, 150), (390, 150)), name((200, 41))
    box = Box(160, 20, 400, 300)
    _, centre = place([line, point], box)
    assert place([point, line], box)[0] == centre
