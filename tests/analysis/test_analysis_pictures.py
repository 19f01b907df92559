"""What is drawn: the values behind the colours, read back from the figure, and what may not stop a drawing."""

import pytest
from masks_by_hand import LAYOUT, sliding
from matplotlib.figure import Figure

import drawing
from bosch.analysis.locality import LocalityChoice, draw_locality
from bosch.analysis.overlap import Panel, draw_overlap
from bosch.analysis.units import draw_layers, draw_units
from bosch.common.pictures import LARGEST_INCHES
from bosch.heads import HeadLayout, HeadMask

A = sliding([(0, 0), (0, 2), (2, 1), (4, 0)])
B = sliding(unit for unit in LAYOUT.units() if unit[0] == 2)
AWKWARD = "$x_1^{\\frac & <b> 100% é"


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """Figures in place of files."""
    figures: list[Figure] = []
    for name in ("overlap", "units", "locality"):
        monkeypatch.setattr(f"bosch.analysis.{name}.save_figure", lambda figure, _: figures.append(figure))
    return figures


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def labels(ticks) -> list[str]:
    return [label.get_text() for label in ticks]


def test_heat_map_shows_each_pair_in_its_triangle_and_no_diagonal(drawn, tmp_path):
    panel = Panel("ratio 0.5", ("a", "b", "c"), ((0, 0.1, 0.2), (0.3, 0, 0.4), (0.5, 0.6, 0)))
    draw_overlap([panel], "two models", tmp_path / "x")
    axes = drawn[0].axes[0]
    assert axes.collections[0].get_array().tolist() == [[None, 0.1, 0.2], [0.3, None, 0.4], [0.5, 0.6, None]]
    assert texts(axes) == ["0.10", "0.20", "0.30", "0.40", "0.50", "0.60"]
    assert labels(axes.get_xticklabels()) == labels(axes.get_yticklabels()) == ["a", "b", "c"]
    bottom, top = axes.get_ylim()
    assert bottom > top, "the first row is at the top, so that [1][0] lies in the lower triangle"
    assert (axes.get_title(), drawn[0].get_supxlabel()) == ("ratio 0.5", "two models")


def test_a_panel_for_each_ratio(drawn, tmp_path):
    panels = [Panel(f"ratio {number}", ("a", "b"), ((0, 0.5), (0.5, 0))) for number in range(3)]
    draw_overlap(panels, "", tmp_path / "x")
    assert [axes.get_title() for axes in drawn[0].axes if axes.get_title()] == ["ratio 0", "ratio 1", "ratio 2"]


def test_layers_show_shares_and_counts(drawn, tmp_path):
    draw_layers({"a": A, "b": B}, tmp_path / "x")
    axes = drawn[0].axes[0]
    assert axes.collections[0].get_array().tolist() == [[2 / 3, None, 1 / 5, 0, 1], [0, None, 1, 0, 0]]
    assert texts(axes) == ["2", "1", "0", "1", "0", "5", "0", "0"]
    assert labels(axes.get_yticklabels()) == ["a", "b"]


def test_units_show_full_sliding_and_absent(drawn, tmp_path):
    draw_units({"a": A, "b": B}, tmp_path / "x")
    first, second = drawn[0].axes[:2]
    full, slides, absent = 0, 1, 2
    assert first.collections[0].get_array().tolist() == [
        [slides, full, slides, absent, absent],
        [absent] * 5,
        [full, slides, full, full, full],
        [full, full, absent, absent, absent],
        [slides, absent, absent, absent, absent],
    ]
    assert second.collections[0].get_array()[2].tolist() == [slides] * 5
    assert (first.get_title(), second.get_title()) == ("a", "b")


def test_locality_orders_units_by_score_and_colours_them_by_choice(drawn, tmp_path):
    found = LocalityChoice({(0, 0): 0.1, (0, 1): 0.9, (1, 0): 0.5}, sliding([(1, 0)], HeadLayout((2, 1))))
    draw_locality(found, "razor", "bosch", tmp_path / "x")
    scores, choice, shares = drawn[0].axes
    assert scores.collections[0].get_offsets().tolist() == [[0.5, 0.9], [1.5, 0.5], [2.5, 0.1]]
    assert choice.collections[0].get_array().tolist() == [[0, 1, 0]]
    heights = [bar.get_height() for bar in shares.patches[1::2]]
    assert heights == [0, 1, 0]
    assert [line.get_xdata()[0] for axes in drawn[0].axes for line in axes.lines] == [1, 1, 1]


def test_names_are_shown_as_they_are(tmp_path):
    """A dollar sign begins a formula in matplotlib, and a wrong formula ends the drawing."""
    found = LocalityChoice({unit: float(unit[1]) for unit in LAYOUT.units()}, A)
    with drawing.drawn():
        draw_overlap([Panel(AWKWARD, (AWKWARD, "b"), ((0, 1), (1, 0)))], AWKWARD, tmp_path / "overlap")
        draw_layers({AWKWARD: A}, tmp_path / "layers")
        draw_units({AWKWARD: A}, tmp_path / "units")
        draw_locality(found, AWKWARD, AWKWARD, tmp_path / "locality")
    assert len(list(tmp_path.iterdir())) == 8
    for name in ("overlap", "layers", "units", "locality"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.svg").read_bytes().startswith(b"<?xml")


def test_a_layout_of_any_size_fits_on_a_page(drawn, tmp_path):
    mask = HeadMask.all_full(HeadLayout((1,) * 700), 4)
    draw_units({"a": mask}, tmp_path / "x")
    draw_layers({"a": mask}, tmp_path / "x")
    assert all(max(figure.get_size_inches()) <= LARGEST_INCHES for figure in drawn)
