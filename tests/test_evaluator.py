import random
import signal

import pytest
import torch

from bosch.calibration import Example, ExampleSet
from bosch.decoder import Decoder
from bosch.errors import BoschError
from bosch.heads import HeadMask
from bosch.scoring.evaluator import Evaluator
from bosch.scoring.journal import Journal
from bosch.selectors import random_mask
from families import FAMILIES, make_model
from reference import reference_logits

WINDOW = 5


def random_examples(lengths: list[int], answer_tokens: int = 3, seed: int = 0) -> ExampleSet:
    """Random tokens, the last of which are the answer; examples of one length give batches without padding."""
    rng = random.Random(seed)
    examples = []
    for length in lengths:
        ids = tuple(rng.randrange(1, 97) for _ in range(length))
        examples.append(Example(ids, length - answer_tokens, 0, "random", length, 0.0, "", ""))
    return ExampleSet(tuple(examples))


def plain_logits(decoder: Decoder, examples: ExampleSet, mask: HeadMask) -> list[torch.Tensor]:
    """Logits that predict each example's answer, by one plain full pass over that example alone."""
    whole = (decoder.forward(torch.tensor([example.input_ids]), mask)[0] for example in examples)
    return [logits[example.answer_start - 1 : -1] for logits, example in zip(whole, examples, strict=True)]


def plain_score(decoder: Decoder, examples: ExampleSet, mask: HeadMask) -> tuple[list[bool], list[float]]:
    hits, nlls = [], []
    for logits, example in zip(plain_logits(decoder, examples, mask), examples, strict=True):
        answer = torch.tensor(example.input_ids[example.answer_start :])
        hits.append(bool((logits.argmax(-1) == answer).all()))
        nlls.append(float(-logits.log_softmax(-1)[torch.arange(len(answer)), answer].mean()))
    return hits, nlls


@pytest.mark.parametrize("lengths", [[23] * 4, [29, 27, 28, 19]], ids=["even", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_incremental_evaluation_equals_plain_passes(family, lengths):
    """Logits within 1e-5 and the same hits, for masks that share much, little and nothing with the base."""
    decoder = Decoder(make_model(family))
    examples = random_examples(lengths)
    evaluator = Evaluator(decoder, examples, window=WINDOW)
    for seed in range(8):
        mask = random_mask(evaluator.full, 0.5, seed)
        score = evaluator.score(mask)
        hits, nlls = plain_score(decoder, examples, mask)
        assert list(score.hits) == hits
        torch.testing.assert_close(torch.tensor(score.nlls), torch.tensor(nlls), rtol=1e-5, atol=1e-5)
        if seed % 3 == 0:
            evaluator.rebase(mask)


@pytest.mark.parametrize("sinks", [0, 2])
def test_scores_equal_dense_masks_in_float64(sinks):
    decoder = Decoder(make_model("qwen3", dtype=torch.float64))
    examples = random_examples([23, 19])
    evaluator = Evaluator(decoder, examples, window=WINDOW, sinks=sinks)
    for seed in range(5):
        mask = random_mask(evaluator.full, 0.5, seed)
        for example, nll in zip(examples, evaluator.score(mask).nlls, strict=True):
            ids = torch.tensor([example.input_ids])
            logits = reference_logits(decoder.model, ids, mask)[0, example.answer_start - 1 : -1]
            answer = ids[0, example.answer_start :]
            expected = -logits.log_softmax(-1)[torch.arange(len(answer)), answer].mean()
            assert nll == pytest.approx(float(expected), abs=1e-6)  # its softmax is float32


def test_layers_with_windows_of_their_own_equal_dense_masks_in_float64():
    decoder = Decoder(make_model("qwen3", dtype=torch.float64))
    (example,) = random_examples([23]).examples
    evaluator = Evaluator(decoder, ExampleSet((example,)), window=WINDOW, sinks=2)
    narrow = random_mask(evaluator.full, 0.7, seed=1)
    evaluator.rebase(narrow)
    nlls = [evaluator.score(narrow).nll]
    for layers, window in (([2], 9), ([0, 2], 6), ([0, 1, 2], 40)):
        mask = narrow.give_window(window, layers)
        ids = torch.tensor([example.input_ids])
        logits = reference_logits(decoder.model, ids, mask)[0, example.answer_start - 1 : -1]
        expected = -logits.log_softmax(-1)[torch.arange(3), ids[0, example.answer_start :]].mean()
        nlls.append(evaluator.score(mask).nll)
        assert nlls[-1] == pytest.approx(float(expected), abs=1e-6)  # its softmax is float32
    assert len(set(nlls)) == 4
    with pytest.raises(BoschError, match=r"is for .*, window 5, 2 sinks; the mask is for .*, window 4, 2 sinks"):
        evaluator.score(narrow.give_window(4, [2]))


def test_answer_logits_are_within_1e5_of_the_plain_pass_on_every_row_of_a_padded_batch():
    decoder = Decoder(make_model("qwen3"))
    examples = random_examples([29, 28, 27])
    evaluator = Evaluator(decoder, examples, window=WINDOW)
    mask = random_mask(evaluator.full, 0.5, seed=3)
    evaluator.score(mask)
    (batch,) = evaluator._batches.values()
    from bosch.attention.interface import hybrid_attention

    with torch.no_grad(), hybrid_attention(decoder.model):
        found = evaluator._answer_logits(batch, mask)
    expected = torch.cat([plain_logits(decoder, examples, mask)[index] for index in batch.indices])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory_bytes", [1, 60_000, 2**30])
def test_less_memory_means_more_work_and_the_same_scores(memory_bytes):
    decoder = Decoder(make_model("llama", num_hidden_layers=5))
    examples = random_examples([31] * 3)
    evaluator = Evaluator(decoder, examples, window=WINDOW, memory_bytes=memory_bytes)
    masks = [evaluator.full.localize([(layer, head)]) for layer in (4, 3, 1) for head in range(2)]
    found = [evaluator.score(mask).nlls for mask in masks]
    expected = [plain_score(decoder, examples, mask)[1] for mask in masks]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-5, atol=1e-5)
    kept = sum(states.nbytes for batch in evaluator._batches.values() for states in batch.boundaries.values())
    embeddings = sum(batch.boundaries[0].nbytes for batch in evaluator._batches.values())
    assert kept <= max(memory_bytes, embeddings)


def test_a_mask_that_differs_at_the_top_costs_only_the_top():
    decoder = Decoder(make_model("llama", num_hidden_layers=5))
    examples = random_examples([31] * 3, answer_tokens=3)
    evaluator = Evaluator(decoder, examples, window=WINDOW)
    evaluator.score(evaluator.full)
    before = evaluator._layer_tokens
    evaluator.score(evaluator.full.localize([(3, 0)]))
    suffix, answers = 31 - WINDOW, 3
    assert evaluator._layer_tokens - before == 3 * (suffix + answers)


def test_a_mask_seen_before_is_never_run_again(tmp_path):
    decoder = Decoder(make_model("llama"))
    ran = []
    examples = random_examples([23] * 2)

    def evaluator(journal):
        made = Evaluator(decoder, examples, window=WINDOW, on_evaluation=lambda *_: ran.append(1))
        made.use_journal(journal)
        return made

    with Journal(tmp_path / "journal", {"model": "a"}) as journal:
        first = evaluator(journal)
        scores = [first.score(random_mask(first.full, 0.5, seed)) for seed in (0, 1, 0)]
    assert len(ran) == 2
    with Journal(tmp_path / "journal", {"model": "a"}) as journal:
        again = evaluator(journal)
        assert [again.score(random_mask(again.full, 0.5, seed)) for seed in (0, 1, 0)] == scores
        masks = [random_mask(first.full, 0.5, seed) for seed in (0, 1, 0)]
        assert again.cost(masks) == first.cost(masks)
        assert again.cost(masks).evaluations == 2
    assert len(ran) == 2


def test_bfloat16_scores_are_near_float32():
    examples = random_examples([23] * 4)
    nlls = []
    for dtype in (torch.float32, torch.bfloat16):
        evaluator = Evaluator(Decoder(make_model("llama", dtype=dtype, initializer_range=0.1)), examples, window=WINDOW)
        nlls.append(evaluator.score(random_mask(evaluator.full, 0.5, 0)).nll)
    assert nlls[0] == pytest.approx(nlls[1], abs=0.1)


def test_what_cannot_be_evaluated_is_refused():
    decoder = Decoder(make_model("llama"))
    with pytest.raises(BoschError, match="covers examples of 7 tokens whole"):
        Evaluator(decoder, random_examples([7]), window=7)
    with pytest.raises(BoschError, match="the model takes at most 256"):
        Evaluator(decoder, random_examples([257]), window=WINDOW)
    with pytest.raises(BoschError, match="no unit that can slide"):
        Evaluator(Decoder(make_model("mistral", sliding_window=9)), random_examples([23]), window=WINDOW)
    evaluator = Evaluator(decoder, random_examples([23]), window=WINDOW)
    with pytest.raises(BoschError, match="window 6"):
        evaluator.score(HeadMask.all_full(decoder.layout, 6))


def test_ctrl_c_between_batches_leaves_the_model_as_it_was():
    decoder = Decoder(make_model("llama"))
    evaluator = Evaluator(decoder, random_examples([23] * 4), window=WINDOW, batch_tokens=23)
    run, calls = decoder.run, 0

    def interrupted(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == 7:
            signal.raise_signal(signal.SIGINT)
        return run(*arguments, **options)

    decoder.run = interrupted
    with pytest.raises(KeyboardInterrupt):
        evaluator.score(evaluator.sliding)
    decoder.run = run
    assert decoder.model.config._attn_implementation == "sdpa"
    assert list(evaluator.score(evaluator.sliding).nlls) == pytest.approx(
        plain_score(decoder, evaluator.examples, evaluator.sliding)[1], rel=1e-5
    )


def test_a_model_that_gives_nan_is_journaled_and_read_back(tmp_path):
    model = make_model("llama")
    decoder = Decoder(model)
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight[0, 0] = float("nan")
    for _ in range(2):
        with Journal(tmp_path / "journal", {}) as journal:
            evaluator = Evaluator(decoder, random_examples([23]), window=WINDOW)
            evaluator.use_journal(journal)
            score = evaluator.score(evaluator.full)
            assert score.hits == (False,)
            assert score.nlls[0] != score.nlls[0]


def test_a_layer_that_mixes_tokens_outside_attention_is_run_on_all_of_them():
    """A convolution over tokens beside the attention: no token may be left out, and scores stay a plain pass's."""
    model = make_model("llama")

    def convolve(module, args, output):
        return output + 0.02 * torch.nn.functional.pad(args[0], (0, 0, 1, 0))[:, :-1]

    for layer in model.model.layers:
        layer.mlp.register_forward_hook(convolve)
    decoder = Decoder(model)
    assert not decoder.tokens_meet_in_attention_only
    examples = random_examples([23, 19])
    evaluator = Evaluator(decoder, examples, window=WINDOW)
    mask = random_mask(evaluator.full, 0.5, 0)
    assert list(evaluator.score(mask).nlls) == pytest.approx(plain_score(decoder, examples, mask)[1], rel=1e-5)


def nll_below(limit: float):
    return lambda score: score.nll <= limit


def one_by_one(decoder: Decoder, **options) -> Evaluator:
    """An evaluator whose batches hold one example each."""
    return Evaluator(decoder, random_examples([23, 19, 29, 31, 17]), window=WINDOW, batch_tokens=1, **options)


@pytest.mark.parametrize("share", [-0.1, 0.0, 0.2, 0.5, 0.9, 1.0, 1.1])
def test_a_mask_is_given_up_once_it_cannot_reach_what_is_wanted(share):
    """The examples come hardest first by the base's NLLs, and only as many as the limit leaves undecided."""
    decoder = Decoder(make_model("llama"))
    whole, evaluator = one_by_one(decoder), one_by_one(decoder)
    mask = random_mask(evaluator.full, 0.5, 1)
    base, nlls = whole.score(whole.full).nlls, whole.score(mask).nlls
    evaluator.score(evaluator.full)
    limit, total, run = share * sum(nlls) / 5, 0.0, 0
    for index in sorted(range(5), key=lambda index: -base[index]):
        if total / 5 > limit:
            break
        total, run = total + nlls[index], run + 1
    score, is_whole = evaluator.score_while(mask, nll_below(limit))
    assert (score.nll, is_whole) == (pytest.approx(total / 5, abs=1e-6), run == 5)
    assert sum(nll > 0 for nll in score.nlls) == run
    assert evaluator.cost([mask]).evaluations == (run > 0)


def test_what_is_known_of_a_mask_saves_work_and_changes_no_answer(tmp_path):
    decoder = Decoder(make_model("llama"))
    ran, answers = [], []
    for _ in range(2):  # the second time with the first one's journal, as a search that goes on after a kill
        with Journal(tmp_path / "journal", {"model": "a"}) as journal:
            evaluator = one_by_one(decoder, on_evaluation=lambda mask, score: ran.append(score))
            evaluator.use_journal(journal)
            evaluator.score(evaluator.full)
            mask = random_mask(evaluator.full, 0.5, 1)
            most = evaluator.score(evaluator.full).nll
            wanted = [nll_below(limit * most) for limit in (0.1, 0.5, 0.1, 9.0, 0.5)]
            answers.append([evaluator.score_while(mask, test) for test in wanted])
            costs = evaluator.cost([mask])
    assert answers[0] == answers[1]
    assert [is_whole for _, is_whole in answers[0]] == [False, False, False, True, False]
    assert answers[0][0] == answers[0][2]
    assert answers[0][1] == answers[0][4]
    assert [score is None for score in ran] == [False, True, True, False]
    assert costs.evaluations == 1
    whole = one_by_one(decoder)
    assert whole.score(mask).nlls == pytest.approx(answers[0][3][0].nlls, abs=1e-6)
    plain_tokens = whole.cost([mask]).full_passes
    assert costs.full_passes <= plain_tokens + 1e-9  # three calls, and no example twice
