"""The page that an exported hybrid shows of itself: what it is, how to load it, what it scored, where it came from."""

import collections
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bosch.deploy.hybridize import base_class
from bosch.deploy.recipe import Recipe
from bosch.runs import score_table

if TYPE_CHECKING:
    from bosch.deploy.modeling_bosch import BoschMixin

TITLES = {
    "model": "original model",
    "model_hash": "SHA-256 of its weights and config",
    "dtype": "dtype of the search",
    "calibration": "SHA-256 of the calibration examples",
    "evaluations": "masks evaluated",
    "bosch": "bosch",
    "git_commit": "commit",
    "torch": "torch",
    "transformers": "transformers",
    "time": "time (UTC)",
}


def model_card(recipe: Recipe, model: "BoschMixin", training: Mapping[str, Any] | None = None) -> str:
    """README.md of an exported directory, with the header that model hubs read.

    Args:
        recipe: what the hybrid was made of.
        model: the hybrid.
        training: the settings it was trained with; None where its weights are the original's.
    """
    settings = recipe.provenance.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    return "\n".join(
        [
            *_header(recipe),
            f"# {recipe.model.rstrip('/').rpartition('/')[2]}: {recipe.mask}",
            "",
            *_description(recipe, settings, training),
            "",
            *_loading(model, training),
            "",
            *_training(training),
            *_scores(recipe),
            "## Where it comes from",
            "",
            "| | |",
            "| --- | --- |",
            *(f"| {title} | {recipe.provenance[key]} |" for key, title in TITLES.items() if key in recipe.provenance),
            *(f"| `{name}` | {value} |" for name, value in settings.items()),
            "",
            "`mask.json` holds the mask in the original model's order of heads. The weights are the original's"
            f"{', trained further' if training else ''}, so its license applies.",
            "",
        ]
    )


def _header(recipe: Recipe) -> list[str]:
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if recipe.model.count("/") == 1 and not recipe.model.startswith((".", "/", "~")):
        lines.append(f"base_model: {recipe.model}")
    return [*lines, "tags:", "- sliding-window-attention", "- bosch", "---", ""]


def _description(recipe: Recipe, settings: dict[str, Any], training: Mapping[str, Any] | None) -> list[str]:
    mask = recipe.mask
    full, units = mask.layout.num_units - mask.num_localized, mask.layout.num_units
    sinks = f" and the first {mask.sinks} of the sequence" if mask.sinks else ""
    chosen = (
        f", chosen by `{settings['method']}` (objective `{settings.get('objective')}`)" if "method" in settings else ""
    )
    trained = "The weights were trained further as this hybrid" if training else "No weight was trained"
    sliding = collections.Counter(mask.window_of(layer) for layer, _ in mask.localized)
    held = "".join(f" + {count} x min(T, {window + mask.sinks})" for window, count in sorted(sliding.items()))
    return [
        f"A hybrid of `{recipe.model}`: {mask.num_localized} of its {units} KV heads (ratio {mask.ratio:.3f}){chosen} "
        f"see the last {mask.shown_window} tokens{sinks}, the other {full} everything. {trained}; in each layer "
        "the heads were put in another order, full ones first.",
        "",
        f"After T tokens, of these {units} heads' keys and values the cache holds {full} x T{held}, where "
        f"the original's holds {units} x T.",
    ]


def _loading(model: "BoschMixin", training: Mapping[str, Any] | None) -> list[str]:
    base = base_class(model)
    full = "something that was never trained" if training else "the original model"
    return [
        "## Loading",
        "",
        "With the code in `modeling_bosch.py`, which you may want to read first:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("DIRECTORY", trust_remote_code=True)',
        'tokenizer = AutoTokenizer.from_pretrained("DIRECTORY", trust_remote_code=True)',
        "```",
        "",
        "With `bosch` installed: `import bosch.deploy`, and no `trust_remote_code`. `generate()` uses the small cache "
        "by itself. The weights are those of an ordinary model with its heads in another order: engines that know "
        f"nothing of this load them as `{base.__name__}`, with `model_type` `{base.config_class.model_type}`, and "
        f"compute {full}, all heads full.",
        "",
        "Adapters (LoRA) that were trained on the original do not fit: their rows and columns belong to heads in the "
        "original's order.",
    ]


def _training(training: Mapping[str, Any] | None) -> list[str]:
    if not training:
        return []
    rows = (f"| `{name}` | {value} |" for name, value in training.items())
    return ["## Training", "", "| | |", "| --- | --- |", *rows, ""]


def _scores(recipe: Recipe) -> list[str]:
    if not recipe.scores:
        return []
    return [
        "## Scores",
        "",
        *score_table([dict(row) for row in recipe.scores]),
        "",
        "Share of examples whose every answer token is the most likely one; NLL of the answers in nats a token. The "
        "mask was chosen on the calibration examples. No weight was trained when these were measured.",
        "",
    ]
