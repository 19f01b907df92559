"""What the searches find, and what they cost: held-out scores against full-pass equivalents.

    python benchmarks/search.py --output DIR [--methods bosch,progressive,floating,nll,razor] [--seeds 3] [...]

SmolLM2-135M, window 64. Each seed has calibration and held-out examples of its own; on them every method runs at every
ratio with its default budget (100 evaluations a layer for `bosch`, the paper's; 3 a unit for greedy ones). `passes` is
what was really run, in passes of the full model over the calibration set; `plain passes` what it takes where every
evaluation is a full pass, as in the paper. Prints a table of means and spreads, and draws them in DIR. Stopped, it goes
on where it was.
"""

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bosch.common.pictures import save_figure
from bosch.common.tables import mean_and_spread, text_table
from bosch.experiments.compare import compare
from bosch.experiments.settings import CompareSettings

Row = dict[str, Any]

REFERENCES = ("original", "all sliding")

COLUMNS = ("accuracy", "nll", "passes", "plain passes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--lengths", default="256,384,512")
    parser.add_argument("--ratios", default="0.25,0.5,0.75")
    parser.add_argument("--methods", default="razor,nll,progressive,floating,bosch")
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--heldout", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    rows = [row for seed in range(options.seeds) for row in run(options, seed)]
    header = ["method", "ratio", "seeds", "held-out accuracy", "held-out NLL", "evaluations", "passes", "plain passes"]
    print("\n".join(text_table(header, [line(group) for group in grouped(rows)])))
    draw(rows, options.output / "cost")


def run(options: argparse.Namespace, seed: int) -> list[Row]:
    """The rows of one comparison."""
    settings = CompareSettings(
        model=options.model,
        window=options.window,
        lengths=tuple(map(int, options.lengths.split(","))),
        examples=options.examples,
        heldout=options.heldout,
        ratios=tuple(map(float, options.ratios.split(","))),
        methods=tuple(options.methods.split(",")),
        seed=seed,
        seeds=1,
        dtype=options.dtype,
    )
    found = compare(settings, options.output / f"seed-{seed}")
    return [
        {
            "method": row["name"],
            "ratio": round(row["ratio"], 3),
            **{kind: row["heldout"][kind] for kind in ("accuracy", "nll")},
            "evaluations": row["cost"]["evaluations"],
            "passes": row["cost"]["full_passes"],
            "plain passes": row["cost"]["evaluations"] or row["cost"]["full_passes"],  # or what a static method read
        }
        for row in found.rows
    ]


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """The seeds of each method at each ratio together, in the order in which they come."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["ratio"]), []).append(row)
    return list(groups.values())


def line(seeds: Sequence[Row]) -> list[str]:
    """A method's mean and spread over the seeds."""

    def show(column: str, digits: int) -> str:
        return mean_and_spread([row[column] for row in seeds], digits)

    columns = [("accuracy", 2), ("nll", 3), ("evaluations", 0), ("passes", 1), ("plain passes", 0)]
    return [seeds[0]["method"], f"{seeds[0]['ratio']:.2f}", str(len(seeds)), *(show(*column) for column in columns)]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Scores against passes, a column a ratio: a small point a seed, a large one their mean, a hollow one where every
    pass is a full one."""
    searched = [row for row in rows if row["method"] not in REFERENCES]
    ratios = sorted({row["ratio"] for row in searched})
    figure = Figure(figsize=(4 * len(ratios), 6.5), layout="constrained")
    axes = figure.subplots(2, len(ratios), sharex=True, sharey="row", squeeze=False)
    for number, ratio in enumerate(ratios):
        axes[0, number].set_title(f"{ratio:.0%} of KV heads slide")
        axes[1, number].set_xlabel("full-pass equivalents")
        for place, kind in zip(axes[:, number], ("accuracy", "nll"), strict=True):
            draw_scores(place, [row for row in rows if row["ratio"] == ratio or row["method"] in REFERENCES], kind)
    axes[0, 0].set_ylabel("held-out accuracy")
    axes[1, 0].set_ylabel("held-out NLL, nats a token")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False)
    save_figure(figure, path)


def draw_scores(axes: Axes, rows: Iterable[Row], kind: str) -> None:
    """One kind of score of every method."""
    axes.set_xscale("log")
    axes.set_yscale("log" if kind == "nll" else "linear")
    groups = grouped(rows)
    means = [{column: statistics.fmean(row[column] for row in seeds) for column in COLUMNS} for seeds in groups]
    for color, (seeds, mean) in enumerate(zip(groups, means, strict=True)):
        method = seeds[0]["method"]
        if method in REFERENCES:
            axes.axhline(mean[kind], color="grey", linewidth=0.8, linestyle="--" if method == "original" else ":")
            continue
        style = {"color": f"C{color - len(REFERENCES)}", "linestyle": "none", "marker": "o"}
        axes.plot([row["passes"] for row in seeds], [row[kind] for row in seeds], markersize=3, alpha=0.6, **style)
        axes.plot(mean["passes"], mean[kind], markersize=9, label=method, **style)
        axes.plot(mean["plain passes"], mean[kind], markersize=9, fillstyle="none", **style)


if __name__ == "__main__":
    main()
