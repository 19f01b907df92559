"""`report.md` of a run, made from nothing but what the run left on disk and its selection."""

from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from bosch.files import read_json, write_text
from bosch.objective import OBJECTIVES, Score
from bosch.search.report.pictures import draw_front, draw_mask, draw_search, draw_sensitivity
from bosch.selectors import Selection
from bosch.tables import Cell, write_csv

if TYPE_CHECKING:
    from bosch.search import RunDirectory, SearchSettings


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
    draw_mask(selection.mask, run.path / "mask")
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


def score_table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows of `scores.json` as a Markdown table, random masks as their mean and spread."""
    lines = [
        "| mask | ratio | held-out accuracy | held-out NLL | calibration accuracy | calibration NLL |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    randoms = [row for row in rows if row["name"].startswith("random ")]
    for row in (row for row in rows if "heldout" in row):
        if row not in randoms:
            lines.append(_table_line(row["name"], [row]))
        elif row is randoms[-1]:
            lines.append(_table_line(f"random units (mean of {len(randoms)}, ± spread)", randoms))
    return lines


def _table_line(name: str, rows: list[dict[str, Any]]) -> str:
    cells = [f"{rows[0]['ratio']:.3f}"]
    for split in ("heldout", "calibration"):
        for kind, digits in (("accuracy", 2), ("nll", 3)):
            values = [row[split][kind] for row in rows]
            spread = f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{fmean(values):.{digits}f}{spread}")
    return f"| {name} | {' | '.join(cells)} |"


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
        "one; NLL is in nats a token. Held-out and calibration examples share no key and no value.",
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


def _task_table(rows: list[dict[str, Any]]) -> list[str]:
    groups = list(rows[0]["heldout"]["accuracy_by_task"])
    lines = [f"| mask | {' | '.join(groups)} |", f"| --- |{' --- |' * len(groups)}"]
    for row in (row for row in rows if "heldout" in row):
        cells = [f"{row['heldout']['accuracy_by_task'][group]:.2f}" for group in groups]
        lines.append(f"| {row['name']} ({row['ratio']:.3f}) | {' | '.join(cells)} |")
    return lines
