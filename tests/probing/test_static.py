"""Every static score against its formula, written out over dense attention maps of the stock model."""

import math
import statistics

import pytest
import torch
from dense_attention import dense_attention, dense_gradients

from bosch.calibration import Example, ExampleSet
from bosch.decoder import Decoder
from bosch.heads import quota
from bosch.probing import AttentionBlock, Subject, blocks
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.objective import Objective
from bosch.selectors import METHODS, Problem
from bosch.selectors.static.ranking import Ranking, measure_rankings
from bosch.selectors.static.razor import period, probe
from families import make_model
from marks import slow_after

WINDOW = 7
FAMILIES = ["llama", "qwen3", "gemma2", "gpt_oss", "gpt_neox"]
ATTENTION = ["dcam", "apl", "proxy", "qada", "razor", "fisher", "lazy"]
# duo, which needs a tokenizer, has a test of its own
RANKINGS = [name for name, method in METHODS.items() if issubclass(method, Ranking) and name != "duo"]


def ignore(*_):
    """A listener that does not listen."""


def make_subject(family: str, sinks: int = 0, **changes) -> Subject:
    decoder = Decoder(make_model(family, torch.float64, initializer_range=0.1, **changes))
    generator = torch.Generator().manual_seed(5)
    examples = []
    for length in (61, 67, 53):
        ids = tuple(torch.randint(1, 97, (length,), generator=generator).tolist())
        examples.append(Example(ids, length - 3, 0, "random", length, 0.0, "", ""))
    return Subject(decoder, ExampleSet(tuple(examples)), WINDOW, sinks)


def make_problem(subject: Subject) -> Problem:
    evaluator = Evaluator(subject.decoder, subject.examples, window=subject.window, sinks=subject.sinks)
    return Problem(Objective(evaluator, "nll"), subject)


def measured(name: str, subject: Subject) -> dict:
    return measured_by([name], make_problem(subject))[name].scores


def measured_by(names, problem, on_stage=ignore) -> dict:
    return dict(measure_rankings([METHODS[name]() for name in names], problem, on_stage))


# The formulas: from maps[example][layer] (H, T, T), one score per query head.


def sees(t: int, j: int, sinks: int) -> bool:
    return t - j < WINDOW or j < sinks


def inside_share(maps, layer, sinks):
    result = []
    for head in range(maps[0][layer].shape[0]):
        inside = total = 0.0
        for example in maps:
            for t, row in enumerate(example[layer][head].tolist()):
                inside += sum(value for j, value in enumerate(row[: t + 1]) if sees(t, j, sinks))
                total += sum(row)
        result.append(inside / total)
    return result


def peak_lag(maps, layer, sinks):
    result = []
    for head in range(maps[0][layer].shape[0]):
        lags = []
        for example in maps:
            row = example[layer][head, -1].tolist()
            lags.append(len(row) - 1 - max(range(len(row)), key=row.__getitem__))
        result.append(1 - min(1, statistics.median(lags) / WINDOW))
    return result


def needed_blocks(maps, layer, sinks, num_groups):
    num_heads = maps[0][layer].shape[0]
    shares = [[] for _ in range(num_heads)]
    for example in maps:
        for t in range(example[layer].shape[1]):
            spans = [slice(start, min(start + WINDOW, t + 1)) for start in range(0, t + 1, WINDOW)]
            pooled = example[layer][:: num_heads // num_groups, t].amax(0)
            order = sorted(spans, key=lambda span: -float(pooled[span].sum()))
            for head in range(num_heads):
                row, held, needed = example[layer][head, t], 0.0, 0
                while held < 0.95 * float(row.sum()):
                    held += float(row[order[needed]].sum())
                    needed += 1
                shares[head].append(needed / len(spans))
    return [-statistics.fmean(own) for own in shares]


def gaussian_share(maps, layer, sinks):
    """A share is the same whatever constant is added to a row's logits, so log probabilities serve as logits."""
    result = []
    for head in range(maps[0][layer].shape[0]):
        shares = []
        for example in maps:
            for t, row in enumerate(example[layer][head].tolist()):
                near = [value for j, value in enumerate(row[: t + 1]) if sees(t, j, sinks)]
                far = [math.log(value) for j, value in enumerate(row[: t + 1]) if not sees(t, j, sinks)]
                if not far:
                    shares.append(1.0)
                    continue
                estimate = len(far) * math.exp(statistics.fmean(far) + statistics.pvariance(far) / 2)
                shares.append(sum(near) / (sum(near) + estimate))
        result.append(statistics.fmean(shares))
    return result


def lazy_share(maps, layer, sinks):
    shares = []
    for example in maps:
        for head in example[layer]:
            for t in list(range(head.shape[0]))[-64:]:
                row = head[t, : t + 1].tolist()
                shares.append(sum(value for j, value in enumerate(row) if t - j < WINDOW or j < 4))
    return [statistics.fmean(shares)] * maps[0][layer].shape[0]


def group_means(decoder, per_head):
    result = {}
    for layer in decoder.layout.eligible_layers:
        heads = per_head(layer)
        size = len(heads) // decoder.layout.units_per_layer[layer]
        for group in range(len(heads) // size):
            result[layer, group] = statistics.fmean(heads[group * size : (group + 1) * size])
    return result


@pytest.mark.parametrize("family", slow_after(2, FAMILIES))
@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("method", ["dcam", "apl", "proxy", "qada", "lazy", "fisher"])
def test_scores_follow_their_formulas(method, sinks, family):
    subject = make_subject(family, sinks)
    decoder = subject.decoder
    if method == "fisher":
        found = [dense_gradients(decoder.model, e.input_ids, e.answer_start) for e in subject.examples]
        maps = [[layer**2 for layer in example] for example in found]
    else:
        maps = [dense_attention(decoder.model, e.input_ids) for e in subject.examples]
    formula = {
        "dcam": inside_share,
        "fisher": inside_share,
        "apl": peak_lag,
        "qada": gaussian_share,
        "lazy": lazy_share,
        "proxy": lambda *a: needed_blocks(*a, decoder.layout.units_per_layer[a[1]]),
    }[method]
    expected = group_means(decoder, lambda layer: formula(maps, layer, sinks))
    assert measured(method, subject) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_razor_follows_its_formula(family):
    """z-scores over all heads of all eligible layers; the induction source is the token after the earlier copy."""
    subject = make_subject(family)
    tokens, step = probe(subject, 4), period(subject, 4)
    assert step == 67 // 4
    assert tokens == tokens[:step] * 4
    maps = dense_attention(subject.decoder.model, tuple(tokens))
    layers = subject.decoder.layout.eligible_layers
    positions = range(step, 4 * step)
    echo = {
        (n, h): statistics.fmean(float(a[m, m - step]) for m in positions)
        for n in layers
        for h, a in enumerate(maps[n])
    }
    induction = {
        (n, h): statistics.fmean(float(a[m, m - step + 1]) for m in positions)
        for n in layers
        for h, a in enumerate(maps[n])
    }

    def z(values, key):
        return (values[key] - statistics.fmean(values.values())) / statistics.pstdev(values.values())

    def per_head(layer):
        return [-max(z(echo, (layer, h)), z(induction, (layer, h))) for h in range(len(maps[layer]))]

    assert measured("razor", subject) == pytest.approx(group_means(subject.decoder, per_head), abs=1e-5)


def test_nll_is_the_rise_when_a_unit_or_a_layer_slides_alone():
    subject = make_subject("llama")
    problem = make_problem(subject)
    evaluator = Evaluator(subject.decoder, subject.examples, window=WINDOW)
    full = evaluator.score(evaluator.full).nll
    units = measured_by(["nll"], problem)["nll"]
    for unit, score in units.scores.items():
        assert score == pytest.approx(full - evaluator.score(evaluator.full.localize([unit])).nll)
    assert units.cost.evaluations == 7
    layers = measured("nll-layer", subject)
    for layer, head in subject.decoder.layout.units():
        whole = evaluator.full.localize([(layer, 0), (layer, 1)])
        assert layers[layer, head] == pytest.approx(full - evaluator.score(whole).nll)


# What must hold of every method.


def blocks_of(probabilities: torch.Tensor) -> AttentionBlock:
    """A whole sequence as one block; the gradients are all ones, so that information is the squared probability."""
    length = probabilities.shape[-1]
    logits = probabilities.clamp(min=1e-9).log().masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    return AttentionBlock(0, length, logits, probabilities, torch.ones_like(probabilities))


@pytest.mark.parametrize("method", ["dcam", "apl", "proxy", "qada", "fisher"])
def test_a_local_head_comes_out_above_a_mixed_one_and_a_global_one_below(method):
    """Heads that attend to themselves, to everything evenly, and to one distant key."""
    length = 67
    local = torch.eye(length)
    even = torch.ones(length, length).tril() / torch.arange(1, length + 1)[:, None]
    distant = torch.zeros(length, length)
    for t in range(length):
        distant[t, max(0, t - 29)] = 1
    heads = torch.stack([even, local, distant]).double()
    subject = make_subject("llama", num_attention_heads=3, num_key_value_heads=3, hidden_size=24)
    statistic = METHODS[method]().statistic(subject)
    statistic.add(0, blocks_of(heads))
    even_score, local_score, distant_score = statistic.locality(0).tolist()
    assert local_score > even_score
    if method != "proxy":  # which counts blocks, near or far
        assert local_score > distant_score


def test_a_retrieving_head_comes_out_least_local():
    subject = make_subject("llama", num_attention_heads=3, num_key_value_heads=3, hidden_size=24)
    step, length = period(subject, 4), 4 * period(subject, 4)
    heads = torch.stack([torch.eye(length), torch.zeros(length, length), torch.zeros(length, length)])
    for t in range(length):
        heads[1, t, max(0, t - step + 1)] = 1  # induction
        heads[2, t, max(0, t - step)] = 1  # echo
    statistic = METHODS["razor"]().statistic(subject)
    statistic.add(0, blocks_of(heads))
    local, induction, echo = statistic.locality(0).tolist()
    assert local > max(induction, echo) + 1


@pytest.mark.parametrize("method", ["dcam", "apl", "proxy", "qada", "razor", "fisher", "nll"])
def test_units_that_change_places_take_their_scores_with_them(method):
    subject = make_subject("llama")
    before = measured(method, subject)
    attention = subject.decoder.model.model.layers[1].self_attn
    with torch.no_grad():
        for linear, heads in ((attention.q_proj, 6), (attention.k_proj, 2), (attention.v_proj, 2)):
            for tensor in (linear.weight, linear.bias):
                tensor.copy_(tensor.unflatten(0, (2, heads // 2, -1)).flip(0).flatten(0, 2))
        columns = attention.o_proj.weight
        columns.copy_(columns.unflatten(1, (2, 3, -1)).flip(1).flatten(1, 3))
    after = measured(method, subject)
    swapped = {(1, 0): (1, 1), (1, 1): (1, 0)}
    assert after == pytest.approx({unit: before[swapped.get(unit, unit)] for unit in before}, abs=1e-9)


@pytest.mark.parametrize("method", RANKINGS)
@pytest.mark.parametrize("ratio", [0, 0.3, 0.5, 0.875, 1])
def test_every_ranking_meets_the_budget_exactly_and_measures_once(method, ratio):
    subject = make_subject("llama")
    problem = make_problem(subject)
    found = measured_by([method], problem)
    known = Problem(problem.objective, None, found)  # with no model to look at, it must use what is known
    mask = METHODS[method]().select(known, ratio, budget=1, seed=0, on_stage=ignore).mask
    scores = found[method].scores
    assert mask.num_localized == quota(ratio, 6)
    slow = [scores[unit] for unit in mask.localized]
    assert all(scores[unit] <= min(slow, default=math.inf) for unit in scores if mask[unit])
    assert METHODS[method].name == method


def test_one_pass_feeds_all_statistics_that_read_the_examples():
    passes = []
    subject = make_subject("llama")
    subject = Subject(subject.decoder, subject.examples, WINDOW, advance=lambda: passes.append(1))
    problem = Problem(make_problem(subject).objective, subject)
    stages = []
    found = measured_by(ATTENTION, problem, lambda *stage: stages.append(stage))
    assert found.keys() == set(ATTENTION)
    assert len(passes) == 3 + 3 + 1  # examples; examples with gradients; razor's own sequence
    assert stages == [
        ("reading attention: dcam, apl, proxy, qada, lazy", 3),
        ("reading attention: fisher", 3),
        ("reading attention: razor", 1),
    ]
    assert found["dcam"].cost.full_passes == 1
    assert found["fisher"].cost.full_passes == 4
    assert found["razor"].cost.full_passes == pytest.approx(4 * (67 // 4) / (61 + 67 + 53))


@pytest.mark.parametrize("method", ATTENTION)
def test_the_size_of_a_block_changes_nothing(method, monkeypatch):
    subject = make_subject("gemma2", sinks=1)
    whole = measured(method, subject)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 6 * 67 * 5)
    assert measured(method, subject) == pytest.approx(whole, abs=1e-12)


def test_gradients_leave_the_model_as_it_was():
    subject = make_subject("qwen3")
    before = {name: parameter.clone() for name, parameter in subject.decoder.model.named_parameters()}
    measured("fisher", subject)
    for name, parameter in subject.decoder.model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
        assert parameter.requires_grad


def test_layers_that_slide_already_are_left_out():
    subject = make_subject("gemma2")
    assert {layer for layer, _ in measured("dcam", subject)} == set(subject.decoder.layout.eligible_layers)
    assert len(subject.decoder.layout.eligible_layers) == 2


def test_bfloat16_scores_are_near_float32():
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        decoder = Decoder(make_model("llama", dtype, initializer_range=0.1))
        found.append(measured("dcam", Subject(decoder, make_subject("llama").examples, WINDOW)))
    assert found[1] == pytest.approx(found[0], abs=0.01)
