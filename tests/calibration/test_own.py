import json

import pytest

from bosch.calibration import own_examples
from bosch.cli import main
from bosch.errors import BoschError


def write_pairs(path, pairs):
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in pairs))
    return path


def make(tokenizer, path, split="calibration", lengths=(8,), num_examples=1, **options):
    examples = own_examples(tokenizer, path, lengths=lengths, num_examples=num_examples, split=split, **options)
    return examples


def test_pairs_are_shared_out_and_no_prompt_is_in_both_splits(tokenizer, tmp_path):
    pairs = [("one two", "1"), ("three four", "2"), ("one two", "9"), ("five six", "3"), ("seven eight", "4")]
    path = write_pairs(tmp_path / "mine.jsonl", pairs)
    seen, held = (make(tokenizer, path, split, num_examples=2) for split in ("calibration", "heldout"))
    assert [(example.prompt, example.answer) for example in seen] == [("one two", "1"), ("five six", "3")]
    assert [example.prompt for example in held] == ["three four", "seven eight"]
    for example in seen:
        whole = tokenizer(f"{example.prompt} {example.answer}")["input_ids"]
        assert list(example.input_ids) == whole[: len(example.input_ids)]
        assert 0 < example.answer_start < len(example.input_ids) == example.length
        assert example.task == "mine"


def test_a_text_is_cut_into_pieces_that_touch_and_the_last_quarter_is_scored(tokenizer, tmp_path):
    path = tmp_path / "novel.txt"
    path.write_text("one two three four five six seven eight nine ten eleven twelve " * 9)
    seen, held = (make(tokenizer, path, split, (8, 12), 2) for split in ("calibration", "heldout"))
    assert [len(example.input_ids) for example in seen] == [8, 12] == [len(example.input_ids) for example in held]
    assert [example.answer_start for example in seen] == [6, 9]
    first = [token for token in tokenizer("a")["input_ids"][:1] if token == tokenizer.bos_token_id]
    pieces = [seen[0], held[0], seen[1], held[1]]
    assert all(list(piece.input_ids[: len(first)]) == first for piece in pieces)
    together = [token for piece in pieces for token in piece.input_ids[len(first) :]]
    assert together == tokenizer(path.read_text(), add_special_tokens=False)["input_ids"][: len(together)]


def test_a_bos_stands_before_each_piece(bos_tokenizer, tmp_path):
    (tmp_path / "text").write_text("one two three four five six seven eight " * 5)
    examples = make(bos_tokenizer, tmp_path / "text", num_examples=2)
    assert [example.input_ids[0] for example in examples] == [bos_tokenizer.bos_token_id] * 2
    assert all(bos_tokenizer.bos_token_id not in example.input_ids[1:] for example in examples)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "not valid JSON: Expecting value"),
        ("[]", r"expected an object, found \[\]"),
        ("3", "expected an object, found 3"),
        ('{"prompt": "a"}', "it lacks answer; expected prompt, answer"),
        ('{"prompt": 1, "answer": "b"}', "prompt must be of type str, found 1"),
        ('{"prompt": "", "answer": "b"}', "prompt and answer must not be empty"),
    ],
)
def test_a_line_that_is_no_pair_is_named(bos_tokenizer, tmp_path, line, message):
    path = write_pairs(tmp_path / "mine.jsonl", [("one", "two")])
    path.write_text(path.read_text() + "\n" + line + "\n")
    with pytest.raises(BoschError, match=rf"mine\.jsonl, line 3: {message}"):
        make(bos_tokenizer, path)


def test_too_little_is_an_error(bos_tokenizer, tmp_path):
    path = write_pairs(tmp_path / "mine.jsonl", [("one", "two"), ("three", "four"), ("five", "six")])
    with pytest.raises(BoschError, match="gives 1 heldout examples, expected 2"):
        make(bos_tokenizer, path, "heldout", num_examples=2)
    with pytest.raises(BoschError, match="cannot read"):
        make(bos_tokenizer, tmp_path / "none")
    with pytest.raises(BoschError, match=r'there is no .*none\.jsonl; expected a file of lines like \{"prompt": '):
        make(bos_tokenizer, tmp_path / "none.jsonl")


def test_json_that_is_not_in_lines_is_not_taken_for_a_text(bos_tokenizer, tmp_path):
    (tmp_path / "mine.json").write_text(json.dumps([{"prompt": "one", "answer": "two"}] * 9))
    with pytest.raises(BoschError, match=r"mine\.json is neither JSON lines nor a text; .* the ending \.jsonl"):
        make(bos_tokenizer, tmp_path / "mine.json")


def test_a_search_on_ones_own_pairs(model_path, tmp_path):
    """Repeated words, told apart by the file's own lines: the model is random, the way through is not."""
    text = "magic number hidden within the following text " * 5
    pairs = write_pairs(tmp_path / "own.jsonl", [(f"{text}{number}", str(number % 7)) for number in range(12)])
    options = "--window 4 --ratio 0.5 --method razor --examples 4 --heldout 3 --lengths 64 --dtype float32"
    output = tmp_path / "run"
    arguments = ["search", "--model", str(model_path), *options.split(), "--data", str(pairs), "--output", str(output)]
    assert main(arguments) == 0
    original = json.loads((output / "scores.json").read_text())["rows"][0]
    assert all(group.startswith("own @ ") for group in original["heldout"]["accuracy_by_task"])
