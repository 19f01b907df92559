"""What the searches find, and what they cost: held-out scores against full-pass equivalents.

    python benchmarks/search.py --output DIR [--methods bosch,progressive,floating,nll,razor] [--seeds 3] [...]

SmolLM2-135M, window 64. Each seed has calibration and held-out examples of its own; on them every method runs at every
ratio with its default budget (100 evaluations a layer for `bosch`, the paper's; 8 for the greedy ones). `passes` is
what was really run, in passes of the full model over the calibration set; `plain passes` what the same evaluations take
where each is a full pass, as in the paper. Stopped, it goes on where it was.
"""

import argparse
import collections
import statistics
from pathlib import Path

from bosch.compare import CompareSettings
from bosch.compare.run import compare
from bosch.files import read_json
from bosch.tables import text_table

Row = dict[str, float]


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
    found: dict[tuple[str, float], list[Row]] = collections.defaultdict(list)
    for seed in range(options.seeds):
        for key, row in run(options, seed).items():
            found[key].append(row)
    header = ["method", "ratio", "seeds", "held-out accuracy", "held-out NLL", "evaluations", "passes", "plain passes"]
    print("\n".join(text_table(header, [line(*key, rows) for key, rows in found.items()])))


def run(options: argparse.Namespace, seed: int) -> dict[tuple[str, float], Row]:
    """One comparison, by method and ratio."""
    settings = CompareSettings(
        model=options.model,
        window=options.window,
        length=tuple(map(int, options.lengths.split(","))),
        examples=options.examples,
        heldout=options.heldout,
        ratios=tuple(map(float, options.ratios.split(","))),
        methods=tuple(options.methods.split(",")),
        seed=seed,
        seeds=1,
        dtype=options.dtype,
    )
    directory = compare(settings, options.output / f"seed-{seed}")
    return {
        (row["name"], round(row["ratio"], 3)): {
            "accuracy": row["heldout"]["accuracy"],
            "nll": row["heldout"]["nll"],
            **row["cost"],
        }
        for row in read_json(directory.rows)["rows"]
    }


def line(name: str, ratio: float, rows: list[Row]) -> list[str]:
    """A method's mean and spread over the seeds."""

    def show(column: str, digits: int) -> str:
        values = [row[column] for row in rows]
        spread = f" ± {statistics.pstdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.{digits}f}{spread}"

    columns = [("accuracy", 2), ("nll", 3), ("evaluations", 0), ("full_passes", 1), ("evaluations", 0)]
    return [name, f"{ratio:.2f}", str(len(rows)), *(show(column, digits) for column, digits in columns)]


if __name__ == "__main__":
    main()
