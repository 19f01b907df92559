"""`bosch analyze`: what masks have in common, and what that says; and what trainings recover."""

import argparse

from bosch.cli.parser import Command, add_output
from bosch.common.files import to_path
from bosch.common.options import TRUST_HELP
from bosch.errors import BoschError

MASK_HELP = "a mask file, or the directory of a finished search"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One action for each analysis."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    for action in ACTIONS:
        subparser = actions.add_parser(action.name, help=action.help, description=action.help, examples=action.examples)
        subparser.set_defaults(run=action.run)
        action.add_arguments(subparser)


def run(_: argparse.Namespace) -> None:
    """No action was named."""
    names = ", ".join(action.name for action in ACTIONS)
    raise BoschError(f"nothing to analyze was named; known: {names} (see bosch analyze --help)")


def _add_masks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("masks", type=to_path, nargs="+", metavar="FILE|RUN", help=MASK_HELP)


def _add_overlap(parser: argparse.ArgumentParser) -> None:
    _add_masks(parser)
    help_text = "masks of another model, by the same methods, for the upper triangle"
    parser.add_argument("--upper", type=to_path, nargs="+", default=[], metavar="FILE|RUN", help=help_text)
    parser.add_argument("--by-ratio", action="store_true", help="a heat map for each ratio, not one for all masks")
    add_output(parser)


def _overlap(arguments: argparse.Namespace) -> None:
    from bosch.analysis.overlap import write_overlap
    from bosch.runs import load_masks

    table = write_overlap(
        load_masks(arguments.masks),
        load_masks(arguments.upper),
        arguments.output,
        split_by_ratio=arguments.by_ratio,
        overwrite=arguments.overwrite,
    )
    print(f"{table}\n\nheat map: {arguments.output / 'overlap.png'}")


def _add_turnover(parser: argparse.ArgumentParser) -> None:
    _add_masks(parser)
    add_output(parser, required=False)


def _turnover(arguments: argparse.Namespace) -> None:
    from bosch.analysis.turnover import measure_turnover, turnover_table, write_turnover
    from bosch.runs import load_masks

    found = measure_turnover(load_masks(arguments.masks))
    if arguments.output:
        write_turnover(found, arguments.output, overwrite=arguments.overwrite)
    print(turnover_table(found))


def _add_replacement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("smaller", type=to_path, metavar="RUN_SMALL", help="a finished search")
    larger_help = "one at a larger ratio, of the same model and window; its held-out set is used"
    parser.add_argument("larger", type=to_path, metavar="RUN_LARGE", help=larger_help)
    parser.add_argument("--seeds", type=int, default=3, metavar="INT", help="random choices to score (default: 3)")
    parser.add_argument("--trust-remote-code", action="store_true", help=TRUST_HELP)
    add_output(parser)


def _replacement(arguments: argparse.Namespace) -> None:
    from bosch.common.files import read_json
    from bosch.experiments.replacement import replacement_table, run_replacement

    directory = run_replacement(
        arguments.smaller,
        arguments.larger,
        arguments.output,
        num_seeds=arguments.seeds,
        trust_remote_code=arguments.trust_remote_code,
        overwrite=arguments.overwrite,
    )
    found = read_json(directory.scores)
    print(f"{replacement_table(found['rows'])}\n\nunits put back: {len(found['departed'])}\nscores: {directory.scores}")


def _units(arguments: argparse.Namespace) -> None:
    from bosch.analysis.units import write_units
    from bosch.runs import load_masks, name_masks

    masks = name_masks(load_masks(arguments.masks))
    table = write_units(masks, arguments.output, overwrite=arguments.overwrite)
    print(f"{table}\n\nmaps: {arguments.output / 'layers.png'}, {arguments.output / 'units.png'}")


def _add_units(parser: argparse.ArgumentParser) -> None:
    _add_masks(parser)
    add_output(parser)


def _add_locality(parser: argparse.ArgumentParser) -> None:
    scores_help = "a file of the folder unit_scores of a search or a comparison"
    parser.add_argument("scores", type=to_path, metavar="UNIT_SCORES", help=scores_help)
    parser.add_argument("mask", type=to_path, metavar="FILE|RUN", help=MASK_HELP)
    add_output(parser)


def _locality(arguments: argparse.Namespace) -> None:
    from bosch.analysis.locality import LocalityChoice, write_locality
    from bosch.runs import load_mask
    from bosch.selectors.unit_scores import load_scores_for

    choice = load_mask(arguments.mask)
    found = LocalityChoice(load_scores_for(arguments.scores, choice), choice.mask)
    scorer, chooser = arguments.scores.stem, choice.method or choice.stem
    words = write_locality(found, scorer, chooser, arguments.output, overwrite=arguments.overwrite)
    print(f"{words}\nplot: {arguments.output / 'locality.png'}")


def _add_curves(parser: argparse.ArgumentParser) -> None:
    help_text = "the directory of a training with evaluations, finished or not"
    parser.add_argument("trainings", type=to_path, nargs="+", metavar="TRAINING", help=help_text)
    add_output(parser)


def _curves(arguments: argparse.Namespace) -> None:
    from bosch.training.curves import load_curves, write_curves

    table = write_curves(load_curves(arguments.trainings), arguments.output, overwrite=arguments.overwrite)
    print(f"{table}\n\ncurves: {arguments.output / 'curves.png'}")


ACTIONS = (
    Command(
        name="overlap",
        help="Jaccard distances between masks, as a table and a heat map.",
        examples=("bosch analyze overlap runs/dcam runs/razor runs/bosch --output runs/overlap",),
        add_arguments=_add_overlap,
        run=_overlap,
    ),
    Command(
        name="turnover",
        help="Share of the sliding units that do not slide any more at the next larger ratio.",
        examples=("bosch analyze turnover runs/bosch-0.25 runs/bosch-0.5 runs/bosch-0.75",),
        add_arguments=_add_turnover,
        run=_turnover,
    ),
    Command(
        name="replacement",
        help="Put units that departed between two ratios back, for random ones, and score that on the held-out set.",
        examples=("bosch analyze replacement runs/bosch-0.5 runs/bosch-0.75 --output runs/replacement",),
        add_arguments=_add_replacement,
        run=_replacement,
    ),
    Command(
        name="units",
        help="Which layers and units each mask localizes, as a table and two maps.",
        examples=("bosch analyze units runs/dcam runs/razor runs/bosch --output runs/units",),
        add_arguments=_add_units,
        run=_units,
    ),
    Command(
        name="locality",
        help="How local each unit looks to a static method, against whether a mask localizes it.",
        examples=("bosch analyze locality runs/dcam/unit_scores/dcam.json runs/bosch --output runs/locality",),
        add_arguments=_add_locality,
        run=_locality,
    ),
    Command(
        name="curves",
        help="Held-out scores of trainings against tokens, a line each, and those of the original.",
        examples=("bosch analyze curves runs/trained-bosch runs/trained-intr --output runs/curves",),
        add_arguments=_add_curves,
        run=_curves,
    ),
)

COMMAND = Command(
    name="analyze",
    help="Compare masks, what they share and what that says; and trainings.",
    examples=(*ACTIONS[0].examples, *ACTIONS[1].examples),
    add_arguments=add_arguments,
    run=run,
)
