"""The front door: the whole job in a few calls, on a model's name or on one that is loaded already.

Every option of the command line is a keyword of the function of the same name, with the same default; the command line
calls these functions. Nothing is written to disk unless an output is named.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bosch.common.files import to_path
from bosch.common.options import make_settings
from bosch.errors import BoschError, in_words
from bosch.evaluation.settings import EvalSettings
from bosch.experiments.settings import CompareSettings, ExperimentSettings, SearchSettings
from bosch.heads import HeadMask

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from bosch.calibration import ExampleSet
    from bosch.deploy.modeling_bosch import BoschMixin
    from bosch.evaluation.run import Evaluation
    from bosch.experiments.compare import Comparison
    from bosch.experiments.experiment import Given
    from bosch.experiments.search import SearchResult
    from bosch.selectors import Method

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=ExperimentSettings)

Masks = HeadMask | str | Path | Iterable[HeadMask | str | Path] | Mapping[str, HeadMask]
"""A mask, the file of one, the directory of a search, several of these, or masks by name."""


def _options_of(settings: type[Any], *left_out: str) -> Callable[[F], F]:
    """Let a function's signature and help name the options that it passes on to settings."""
    fields = [field for field in dataclasses.fields(settings) if field.name not in left_out]

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        parameters = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {one.name for one in parameters}
        empty = inspect.Parameter.empty
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=empty if field.default is dataclasses.MISSING else field.default,
                annotation=field.type,
            )
            for field in fields
            if field.name not in known
        ]
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        lines = [f"    {field.name}: {field.metadata['help']}." for field in fields if "help" in field.metadata]
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])
        return function

    return decorate


@_options_of(SearchSettings, "model")
@in_words()
def search(
    model: "str | Path | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> "SearchResult":
    """Find which KV heads of a model can slide.

    Args:
        model: its name, as for `load_model`; or a loaded one, which is left as it was, whatever happens.
        tokenizer: of a loaded model; not needed where `examples` and `heldout` are example sets.
        output: a directory for everything that is found; the same call on it goes on where it was stopped.
        overwrite: replace another run that is there.
        options: below; `method` may be an object such as `Progressive(steps=12)`, `data` a list of (prompt, answer)
            pairs, of which every second one is held out, and `examples` and `heldout` may be example sets.

    Raises:
        BoschError: anything that the user can mend, in one sentence.
    """
    from bosch.experiments.search import search
    from bosch.selectors import Method

    method = options.get("method")
    if isinstance(method, Method):
        options |= {"method": method.name, "method_options": method.options()}
    settings, given = _experiment(SearchSettings, model, tokenizer, options)
    return search(settings, _path(output), given=given, overwrite=overwrite)


@_options_of(CompareSettings, "model")
@in_words()
def compare(
    model: "str | Path | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> "Comparison":
    """Compare methods of choosing heads, at several ratios.

    Args:
        model, tokenizer, output, overwrite: as for `search`.
        options: below; `data`, `examples` and `heldout` as for `search`.

    Raises:
        BoschError: anything that the user can mend, in one sentence.
    """
    from bosch.experiments.compare import compare

    settings, given = _experiment(CompareSettings, model, tokenizer, options)
    return compare(settings, _path(output), given=given, overwrite=overwrite)


@_options_of(EvalSettings, "targets", "mask")
@in_words()
def evaluate(
    model: "str | Path | Sequence[str | Path] | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    mask: Masks = (),
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> "Evaluation":
    """Score a model, and masks beside it, on needles, on your own examples, or on benchmarks.

    Args:
        model: a loaded one, which is left as it was; or a name, the directory of a search or of an export, or several.
        tokenizer: of a loaded model.
        mask: masks to put on the one model; each is scored beside it.
        output, overwrite: as for `search`.
        options: below; `data` may be a list of (prompt, answer) pairs or an example set, which is the task `own`.

    Raises:
        BoschError: anything that the user can mend, in one sentence.
    """
    from bosch.evaluation.run import evaluate
    from bosch.evaluation.targets import Given

    own = None
    if not isinstance(data := options.get("data"), str | Path | None):
        own = _example_set(data) or _pairs(tokenizer, data, bool(options.get("chat")))
        options |= {"data": f"given {own.fingerprint[:16]}", "tasks": options.get("tasks", ("own",))}
    masks = _masks(mask)
    if isinstance(model, str | Path | list | tuple):
        names = [model] if isinstance(model, str | Path) else model
        files = [str(path) for path, one in masks.items() if one is None]
        if len(files) < len(masks):
            raise BoschError("masks in memory are put on a loaded model, got a name; expected the masks' files")
        settings = make_settings(EvalSettings, {"targets": list(map(str, names)), "mask": files, **options})
        return evaluate(settings, _path(output), own=own, overwrite=overwrite)
    _is_name(model)
    if tokenizer is None:
        raise BoschError("a loaded model is evaluated with its tokenizer, got none")
    name = Path(_name_of(model)).name
    loaded = {path: HeadMask.load(path) if one is None else one for path, one in masks.items()}
    settings = make_settings(
        EvalSettings, {"targets": name, "mask": [f"{path} {one.key()}" for path, one in loaded.items()], **options}
    )
    return evaluate(
        settings,
        _path(output),
        given=Given(cast("PreTrainedModel", model), tokenizer, loaded),
        own=own,
        overwrite=overwrite,
    )


def hybridize(model: "PreTrainedModel", mask: "HeadMask | SearchResult") -> "BoschMixin":
    """Turn a loaded model into the hybrid that a mask describes, in place: no second copy of the weights is made.

    Args:
        model: a causal language model of transformers, in any floating dtype, on any device.
        mask: for a model of this layout; or what a search found.

    Returns:
        The same object, whose `generate()` and `forward()` use a cache that holds no more than each head needs.

    Raises:
        BoschError: the mask is for another layout, or the model's heads cannot be reordered; it is then as it was.
    """
    from bosch.deploy.hybridize import hybridize

    return hybridize(model, mask if isinstance(mask, HeadMask) else mask.mask)


@in_words()
def export(
    hybrid: "BoschMixin | str | Path",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    output: str | Path | None = None,
    *,
    overwrite: bool = False,
    max_shard_size: str = "5GB",
    yarn: float | None = None,
    trust_remote_code: bool = False,
) -> Path:
    """Write a hybrid as a checkpoint directory that loads everywhere, with the code that runs it.

    Args:
        hybrid: that `hybridize` made; or the directory of a search.
        tokenizer: of a live hybrid.
        output: the directory to make.
        overwrite: replace an exported directory that is there.
        max_shard_size: of one weights file, such as "5GB" or "500MB".
        yarn: of a search: extend the positions by another factor.
        trust_remote_code: of a search: let the original checkpoint run Python code of its own.

    Returns:
        The directory.

    Raises:
        BoschError: the output is taken or cannot be written, or the model cannot be loaded; nothing was changed.
    """
    from bosch.deploy.export import export, export_hybrid
    from bosch.deploy.recipe import read_run

    if output is None:
        raise BoschError("an export needs a directory to write to; expected one as output")
    path = to_path(output)
    options: dict[str, Any] = {"overwrite": overwrite, "max_shard_size": max_shard_size}
    if isinstance(hybrid, str | Path):
        export(read_run(Path(hybrid)), path, yarn=yarn, trust_remote_code=trust_remote_code, **options)
    elif tokenizer is None:
        raise BoschError("a live hybrid is exported with its tokenizer, got none")
    else:
        export_hybrid(hybrid, tokenizer, path, **options)
    return path


def methods() -> "dict[str, type[Method]]":
    """The methods of choosing heads by name, those of other installed packages too. Each has a `summary`, and
    parameters that are given as keywords: `methods()["progressive"](steps=12)`."""
    from bosch.selectors import all_methods

    return dict(all_methods())


def _experiment(
    kind: type[S], model: Any, tokenizer: "PreTrainedTokenizerBase | None", options: dict[str, Any]
) -> tuple[S, "Given"]:
    """Settings, and what they do not name because it was handed over."""
    from bosch.experiments.experiment import Given

    options = dict(options)
    is_named = _is_name(model)
    sets = {name: _example_set(options.get(name)) for name in ("examples", "heldout")}
    if not isinstance(data := options.get("data"), str | Path | None):
        if is_named:
            raise BoschError("pairs in memory go with a loaded model, got a name; expected a file as data")
        for number, name in enumerate(sets):
            most = None if sets[name] else options.get(name)
            sets[name] = sets[name] or _pairs(tokenizer, data, bool(options.get("chat")), slice(number, None, 2), most)
    for name, found in sets.items():
        if found is not None:
            options |= {name: len(found)}
    if any(sets.values()):
        options["data"] = "given " + " ".join(found.fingerprint[:16] for found in sets.values() if found)
        if None in sets.values() and not isinstance(data, str | Path):
            raise BoschError("only one of the example sets was given; expected both examples and heldout as sets")
    settings = make_settings(kind, {"model": str(model) if is_named else _name_of(model), **options})
    given = Given(None if is_named else model, tokenizer, calibration=sets["examples"], heldout=sets["heldout"])
    return settings, given


def _example_set(value: Any) -> "ExampleSet | None":
    from bosch.calibration import ExampleSet

    return value if isinstance(value, ExampleSet) else None


def _pairs(
    tokenizer: "PreTrainedTokenizerBase | None",
    pairs: Any,
    chat: bool,
    some: slice = slice(None),
    most: int | None = None,
) -> "ExampleSet":
    from bosch.calibration import ExampleSet, pair_examples

    if tokenizer is None:
        raise BoschError("pairs of prompt and answer need the model's tokenizer, got none")
    found = pair_examples(tokenizer, pairs, chat=chat)[some][:most]
    if not found:
        raise BoschError(f"{len(list(pairs))} pairs are too few; expected two or more: every second one is held out")
    return ExampleSet(tuple(found))


def _masks(given: Any) -> dict[str, HeadMask | None]:
    """Masks by name; None for those that are files."""
    if isinstance(given, Mapping):
        return dict(given)
    several = [given] if isinstance(given, HeadMask | str | Path) else list(given)
    masks: dict[str, HeadMask | None] = {}
    for number, one in enumerate(several, start=1):
        if isinstance(one, HeadMask):
            masks["mask" if len(several) == 1 else f"mask {number}"] = one
        else:
            masks[str(one)] = None
    return masks


def _is_name(model: Any) -> bool:
    """Whether a model is named, and not loaded; what is neither is refused."""
    if not isinstance(model, str | Path) and not hasattr(model, "config"):
        raise BoschError(f"the model must be a name, a path or a loaded model, got {model!r:.80}")
    return isinstance(model, str | Path)


def _name_of(model: Any) -> str:
    """What a loaded model is called: where it came from, else its class."""
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


def _path(output: str | Path | None) -> Path | None:
    return None if output is None else to_path(output)
