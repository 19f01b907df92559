"""A comparison, told to people: a table a ratio, a spreadsheet, and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bosch.common.files import write_text
from bosch.common.pictures import save_figure
from bosch.common.tables import Cell, mean_and_spread, text_table, wilson, write_csv
from bosch.experiments.settings import CompareSettings


def scores_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Held-out accuracy and NLL of each method, between the original model and the all-sliding one (grey)."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, rows, "accuracy")
    _draw(right, rows, "nll")
    left.set_ylabel("held-out accuracy")
    left.set_ylim(-0.03, 1.03)
    right.set_ylabel("held-out NLL, nats a token")
    right.set_yscale("log")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    return figure


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]], kind: str) -> None:
    curves: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        value = row["heldout"][kind]
        if row["name"] in ("original", "all sliding"):
            axes.axhline(value, color="grey", linewidth=0.8, linestyle="--" if row["name"] == "original" else ":")
        else:
            curves.setdefault(row["name"], {}).setdefault(row["ratio"], []).append(value)
    colors = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for index, (name, curve) in enumerate(curves.items()):
        ratios = sorted(curve)
        style = {"color": colors[index % 20], "marker": "o^sDv"[index // 4 % 5], "markersize": 4}
        axes.plot(ratios, [fmean(curve[ratio]) for ratio in ratios], label=name, linewidth=1.4, **style)
    axes.set_xlabel("ratio of sliding KV heads")


Row = Mapping[str, Any]


def write_report(directory: Path, settings: CompareSettings, rows: Sequence[Row], heldout: Mapping[str, Any]) -> None:
    """Write `rows.csv`, the picture and `report.md`.

    Args:
        directory: where to.
        settings: of the comparison.
        rows: as in `rows.json`.
        heldout: what is to be said of the held-out set.
    """
    _write_rows(directory / "rows.csv", rows)
    save_figure(scores_figure(rows), directory / "compare")
    count = rows[0]["heldout"]["examples"]
    beyond = heldout["share_of_needles_beyond_reach"]
    lines = [
        f"# {settings.model}: methods compared, W = {settings.window}",
        "",
        f"Objective `{settings.objective}`, {rows[0]['calibration']['examples']} calibration and {count} held-out "
        f"examples of {', '.join(map(str, settings.lengths))} tokens. {beyond:.0%} of the held-out needles lie further "
        f"back than the {heldout['sliding_reach_tokens']} tokens that sliding layers alone can bridge.",
        "",
        *compared(rows),
        "![scores](compare.png)",
        "",
        "Accuracy is held-out, with Wilson's 95 % interval; methods that are pure chance show mean ± spread over their "
        "seeds. NLL is in nats a token. Passes are the cost of choosing, in passes of the full model over the "
        "calibration set, seconds the same in wall time when it was done; unit scores are measured once and serve all "
        "ratios.",
    ]
    write_text(directory / "report.md", "\n".join(lines) + "\n")


def compared(rows: Sequence[Row]) -> list[str]:
    """A table for each ratio, the best method first."""
    ratios = sorted({row["ratio"] for row in rows if row["name"] not in ("original", "all sliding")})
    return [line for ratio in ratios for line in (f"## Ratio {ratio:.3f}", "", *ratio_table(rows, ratio), "")]


def ratio_table(rows: Sequence[Row], ratio: float) -> list[str]:
    """The methods at one ratio, the best first, between the original and the all-sliding model."""
    ends = [row for row in rows if row["name"] in ("original", "all sliding")]
    tasks = list(rows[0]["heldout"]["accuracy_by_task"])
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["ratio"] == ratio and row not in ends:
            groups.setdefault(row["name"], []).append(row)
    best_first = sorted(groups.values(), key=lambda group: (-_mean(group, "accuracy"), _mean(group, "nll")))
    header = ["method", "accuracy", "95 %", "NLL", *tasks, "calibration", "passes", "seconds"]
    return text_table(header, [_cells(group, tasks) for group in ([ends[0]], *best_first, [ends[1]])])


def _cells(group: Sequence[Row], tasks: Sequence[str]) -> list[str]:
    """One line of a table: a mask, or the seeds of one method."""
    first = group[0]
    interval = "{:.2f}-{:.2f}".format(*wilson(first["heldout"]["accuracy"], first["heldout"]["examples"]))
    if len(group) > 1:
        interval = f"{len(group)} seeds"
    cost = first["cost"]
    return [
        first["name"],
        mean_and_spread([row["heldout"]["accuracy"] for row in group], 2),
        interval,
        f"{_mean(group, 'nll'):.3f}",
        *(f"{fmean(row['heldout']['accuracy_by_task'][task] for row in group):.2f}" for task in tasks),
        f"{fmean(row['calibration']['accuracy'] for row in group):.2f}",
        f"{cost['full_passes']:.1f}",
        f"{cost['seconds']:.0f}",
    ]


def _mean(group: Sequence[Row], kind: str) -> float:
    return fmean(row["heldout"][kind] for row in group)


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    tasks = list(rows[0]["heldout"]["accuracy_by_task"])
    names = ["accuracy", "low", "high", "nll", "calibration_accuracy", "calibration_nll"]
    header = ["method", "ratio", "seed", *names, *tasks, "evaluations", "full_passes", "seconds"]
    write_csv(path, header, (_csv_line(row, tasks) for row in rows))


def _csv_line(row: Row, tasks: Sequence[str]) -> list[Cell]:
    held, seen, cost = row["heldout"], row["calibration"], row["cost"]
    scores = [held["accuracy"], *wilson(held["accuracy"], held["examples"]), held["nll"]]
    by_task = [held["accuracy_by_task"][task] for task in tasks]
    return [row["name"], row["ratio"], row["seed"], *scores, seen["accuracy"], seen["nll"], *by_task, *cost.values()]
