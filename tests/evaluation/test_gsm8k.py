import pytest
from local_data import problem, write_lines

from bosch.errors import BoschError
from bosch.evaluation.gsm8k import Problem, make_prompts, read_problems, read_training_problems

TRAINING = [Problem(f"train {index}?", f"so\n#### {index}") for index in range(37)]


def test_prompt_layout():
    (prompt,) = make_prompts([Problem("How many?", "#### 1")], TRAINING[:5])
    shots = prompt.removesuffix("Question: How many?\nAnswer:").split("\n\n")
    assert shots.pop() == ""
    assert sorted(shots) == [f"Question: train {index}?\nAnswer: so\n#### {index}" for index in range(5)]


def test_examples_are_the_ones_that_the_harness_draws():
    # Noted down from prompts that lm-evaluation-harness 0.4.13 made of 37 training problems.
    drawn = [[28, 7, 0, 5, 2], [5, 6, 22, 15, 1], [1, 22, 30, 29, 9]]
    prompts = make_prompts([Problem("Q", "#### 1")] * 3, TRAINING)
    assert prompts == [
        "".join(f"Question: train {index}?\nAnswer: so\n#### {index}\n\n" for index in row) + "Question: Q\nAnswer:"
        for row in drawn
    ]


def test_a_limit_leaves_the_first_prompts_as_they_are():
    problems = [Problem(f"Q{index}", "#### 1") for index in range(7)]
    assert make_prompts(problems[:3], TRAINING) == make_prompts(problems, TRAINING)[:3]


def test_too_few_to_draw_from():
    with pytest.raises(BoschError, match="5 worked examples are to be drawn from 4; expected at least as many"):
        make_prompts(TRAINING[:1], TRAINING[:4])


def test_reads_what_is_published(tmp_path):
    write_lines(tmp_path / "gsm8k.jsonl", [problem(number) for number in range(3)])
    write_lines(tmp_path / "gsm8k_train.jsonl", [problem(7)])
    assert read_problems(tmp_path, limit=2) == tuple(Problem(**problem(number)) for number in range(2))
    assert read_training_problems(tmp_path) == (Problem("What is 7?", "It is 7.\n#### 7"),)


def test_faults_are_named(tmp_path):
    with pytest.raises(BoschError, match=r"there is no .*gsm8k\.jsonl; put GSM8K's test\.jsonl"):
        read_problems(tmp_path)
    with pytest.raises(BoschError, match=r"there is no .*gsm8k_train\.jsonl; put GSM8K's train\.jsonl"):
        read_training_problems(tmp_path)
    write_lines(tmp_path / "gsm8k.jsonl", [problem(1), {"question": "?", "answer": "18"}])
    with pytest.raises(BoschError, match=r"line 2: the answer must end with '#### ' and a number, found '18'"):
        read_problems(tmp_path)
    write_lines(tmp_path / "gsm8k.jsonl", [{"question": "?", "answer": 18}])
    with pytest.raises(BoschError, match="line 1: answer must be of type str, found 18"):
        read_problems(tmp_path)
