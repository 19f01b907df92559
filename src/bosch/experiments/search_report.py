"""A search, told to people: one page and four pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bosch.common.files import read_json, write_text
from bosch.common.pictures import ABSENT, FULL, SLIDING, save_figure
from bosch.common.tables import Cell, text_table, write_csv
from bosch.heads import HeadMask
from bosch.runs import score_table
from bosch.scoring.objective import OBJECTIVES, Score
from bosch.selectors import Selection

if TYPE_CHECKING:
    from bosch.experiments.settings import SearchSettings
    from bosch.runs import RunDirectory


def mask_figure(mask: HeadMask) -> Figure:
    """Heat map of KV heads, layers upwards: blue full, orange sliding, grey not eligible."""
    width = max(mask.layout.units_per_layer)
    cells = [[2 if head >= len(row) else int(not row[head]) for head in range(width)] for row in mask.full]
    figure = Figure(figsize=(2.0 + 0.45 * width, 1.2 + 0.17 * len(cells)), layout="constrained")
    axes = figure.subplots()
    axes.pcolormesh(
        cells, cmap=ListedColormap([FULL, SLIDING, ABSENT]), vmin=0, vmax=2, edgecolors="white", linewidth=1
    )
    axes.set_xticks([head + 0.5 for head in range(width)], [str(head) for head in range(width)])
    labelled = range(0, len(cells), 1 + len(cells) // 40)
    axes.set_yticks([layer + 0.5 for layer in labelled], [str(layer) for layer in labelled], fontsize=7)
    axes.set_xlabel("KV head")
    axes.set_ylabel("layer")
    axes.set_title(f"{mask.num_localized} of {mask.layout.num_units} sliding, W = {mask.shown_window}", fontsize=9)
    shown = [Patch(color=FULL, label="full"), Patch(color=SLIDING, label="sliding")]
    figure.legend(handles=shown, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def draw_sensitivity(sensitivity: Mapping[int, float], mask: HeadMask, path: Path) -> None:
    """Bars of each layer's sensitivity, where it is known, with the share of its units that slide behind them."""
    layers = mask.layout.eligible_layers
    shares = [mask.localized_per_layer[layer] / mask.layout.units_per_layer[layer] for layer in layers]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.bar(list(sensitivity), list(sensitivity.values()), color=FULL)
    axes.set_xlabel("layer")
    axes.set_ylabel("fall of the normalized score")
    behind = axes.twinx()
    behind.step(layers, shares, where="mid", color=SLIDING)
    behind.set_ylim(-0.03, 1.03)
    behind.set_ylabel("share of units sliding", color=SLIDING)
    axes.set_title("Sensitivity of each layer, and what was localized", fontsize=10)
    save_figure(figure, path)


def draw_search(values: Sequence[float], path: Path) -> None:
    """Normalized score of every evaluation in its order: dots, and the two anchors."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
    axes.axhline(0.0, color="grey", linewidth=0.8, linestyle=":")
    axes.plot(range(1, len(values) + 1), values, ".", markersize=4, color=FULL)
    axes.set_xlabel("evaluation")
    axes.set_ylabel("normalized score")
    axes.set_title("The search: 1 = the original model, 0 = every unit sliding", fontsize=10)
    save_figure(figure, path)


def draw_front(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """NLL and accuracy of each mask against its share of the original's cache; a line through the masks on the way and
    the chosen ones on the calibration set, dots for what was judged on the held-out set."""
    original = next(row for row in rows if row["name"] == "original")
    chosen = [row for row in rows if not row["name"].startswith("random ")]
    chosen.sort(key=lambda row: row["cache_bytes"])
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("nll", "accuracy"), strict=True):
        for split, style in (("calibration", "-"), ("heldout", "o")):
            shown = [row for row in chosen if split in row]
            shares = [row["cache_bytes"] / original["cache_bytes"] for row in shown]
            colour = FULL if split == "calibration" else SLIDING
            axes.plot(shares, [row[split][kind] for row in shown], style, color=colour, markersize=5, label=split)
        axes.set_xlabel("cache, as a share of the original's")
        axes.set_ylabel(kind if kind == "accuracy" else "answer NLL, nats a token")
        axes.set_xlim(1.03, 0)
    axes.legend(fontsize=8, frameon=False)
    save_figure(figure, path)


def write_report(run: "RunDirectory", settings: "SearchSettings", selection: Selection, history: list[Score]) -> None:
    """Write the page and its pictures.

    Args:
        run: where `scores.json` lies and the report goes.
        settings: of the run.
        selection: what was chosen at the largest ratio.
        history: every score on the calibration set, in the order in which they were measured.
    """
    scores = read_json(run.scores)
    low, high = scores["facts"]["anchors"]
    value = OBJECTIVES[settings.objective]
    save_figure(mask_figure(selection.mask), run.path / "mask")
    draw_sensitivity(selection.sensitivity, selection.mask, run.path / "sensitivity")
    draw_search([(value(score) - low) / (high - low) for score in history], run.path / "search")
    draw_front(scores["rows"], run.path / "front")
    write_csv(run.front, FRONT_HEADER, map(_front_line, scores["rows"]))
    write_text(run.report, "\n".join(_lines(settings, selection, scores)) + "\n")


FRONT_HEADER = (
    "name",
    "ratio",
    "cache_bytes",
    "calibration_accuracy",
    "calibration_nll",
    "heldout_accuracy",
    "heldout_nll",
)


def _front_line(row: dict[str, Any]) -> list[Cell]:
    scores = [row.get(split, {}).get(kind) for split in ("calibration", "heldout") for kind in ("accuracy", "nll")]
    return [row["name"], row["ratio"], row["cache_bytes"], *scores]


def _lines(settings: "SearchSettings", selection: Selection, scores: dict[str, Any]) -> list[str]:
    facts, rows = scores["facts"], scores["rows"]
    examples = {split: rows[0][split]["examples"] for split in ("calibration", "heldout")}
    reach = facts["heldout"]
    return [
        f"# {settings.model}: {selection.mask}",
        "",
        f"Method `{settings.method}`, objective `{settings.objective}`, {facts['evaluations']} evaluations, "
        f"{facts['full_passes']} full-pass equivalents over {examples['calibration']} calibration examples.",
        "",
        *score_table(rows),
        "",
        f"Accuracy is the share of {examples['heldout']} held-out examples whose every answer token is the most likely "
        f"one; NLL is in nats a token. {_parted(settings)}",
        f"Sliding layers alone could carry information over {reach['sliding_reach_tokens']} tokens; "
        f"{reach['share_of_needles_beyond_reach']:.0%} of the held-out examples ask for what lies further back.",
        "",
        "![units](mask.png)",
        "",
        "![sensitivity](sensitivity.png)",
        "",
        f"What a smaller cache costs, at {facts['cache_tokens']:,} tokens; the numbers are in `front.csv`:",
        "",
        "![front](front.png)",
        "",
        "![search](search.png)",
        "",
        "## Held-out accuracy by task",
        "",
        *_task_table(rows),
        "",
        "## Files",
        "",
        "`mask.json` is the result, at the largest ratio; `masks/` holds those at smaller ratios, asked for or met on "
        "the way, by their number of sliding units; "
        "`selection.json` every choice; `scores.json` the numbers above; `journal.jsonl` and `heldout.jsonl` every "
        "evaluation; `run.json` the settings and versions. The same command, run again, changes nothing.",
    ]


def _parted(settings: "SearchSettings") -> str:
    if settings.data is not None:
        return "The examples are your own; held-out and calibration examples share no prompt."
    return "Held-out and calibration examples share no key and no value."


def _task_table(rows: list[dict[str, Any]]) -> list[str]:
    groups = list(rows[0]["heldout"]["accuracy_by_task"])
    lines = []
    for row in (row for row in rows if "heldout" in row):
        cells = [f"{row['heldout']['accuracy_by_task'][group]:.2f}" for group in groups]
        lines.append([f"{row['name']} ({row['ratio']:.3f})", *cells])
    return text_table(["mask", *groups], lines)
