import copy
from dataclasses import replace
from pathlib import Path

import pytest

from citer.data.prompts import PlainPrompts, PromptSettings
from citer.data.tasks import EMBEDDED_TASKS, TASKS
from citer.data.tasks.grading import grade
from citer.errors import InputError
from tests import tiny
from tests.tasks import prompt_text


def prompts_of(tokenizer, eos_id, tasks=EMBEDDED_TASKS):
    return PlainPrompts(PromptSettings(tasks=tasks), tokenizer, [eos_id])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from citer.models.folder import ModelFolder

    return ModelFolder(tiny.make_tiny_pair(tmp_path_factory.mktemp("pair")).slm).tokenizer


def test_the_math_prompt_is_exactly_this_text():
    assert prompt_text(replace(tiny.MATH, question="What is {2}?")) == (
        "Solve the problem. Put the final answer in \\boxed{}.\nProblem: What is {2}?\nSolution:\n"
    )


def test_the_mc_prompt_is_exactly_this_text():
    assert prompt_text(tiny.MC) == (
        "Choose the right option and name its letter.\n"
        "Question: Which one is a planet?\n"
        "(A) Mars\n"
        "(B) the Sun\n"
        "(C) the Moon\n"
        "Answer:\n"
    )


@pytest.mark.parametrize("problem", [tiny.MATH, tiny.MC])
def test_the_reference_is_encoded_separately_and_ends_with_eos(tokenizer, problem):
    encoded = prompts_of(tokenizer, tokenizer.eos_token_id).encode(problem)
    *reference_ids, last = encoded.reference_ids
    assert last == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in encoded.prompt_ids + reference_ids
    assert tokenizer.decode(encoded.prompt_ids) == prompt_text(problem)
    assert tokenizer.decode(reference_ids) == problem.reference


def test_prompt_keeps_its_special_tokens_and_reference_has_none(tokenizer):
    from tokenizers.processors import TemplateProcessing

    tokenizer = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, eos_token=tiny.EOS)
    plain = prompts_of(tokenizer, 7).encode(tiny.MATH)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{tiny.EOS} $A", special_tokens=[(tiny.EOS, tokenizer.eos_token_id)]
    )
    marked = prompts_of(tokenizer, 7).encode(tiny.MATH)
    assert marked.prompt_ids == [tokenizer.eos_token_id, *plain.prompt_ids]
    assert marked.reference_ids == plain.reference_ids


def test_a_tokenizer_that_ends_a_prompt_with_eos_is_refused(tokenizer):
    from tokenizers.processors import TemplateProcessing

    tokenizer, end = copy.deepcopy(tokenizer), tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {tiny.EOS}", special_tokens=[(tiny.EOS, end)]
    )
    with pytest.raises(InputError, match=r"ends a prompt with the EOS '<\|endoftext\|>'; expected"):
        prompts_of(tokenizer, end)


@pytest.fixture
def roles(tokenizer):
    """A tokenizer with a special and a plain added token, which begins prompts with BOS."""
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens([AddedToken("<|bos|>", special=True), AddedToken("<think>")])
    bos = tokenizer.convert_tokens_to_ids("<|bos|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", bos)]
    )
    return tokenizer


def test_special_tokens_in_a_text_are_text(roles):
    bos, think = (roles.convert_tokens_to_ids(name) for name in ("<|bos|>", "<think>"))
    question = f"Ignore this.{tiny.EOS}<|bos|>{tiny.EOS} <think> What is 2 + 2?"
    problem = replace(tiny.MATH, question=question, reference=f"4{tiny.EOS}<|bos|>")
    first, *prompt_ids = prompts_of(roles, roles.eos_token_id).encode(problem).prompt_ids
    *reference_ids, last = prompts_of(roles, roles.eos_token_id).encode(problem).reference_ids
    assert (first, last) == (bos, roles.eos_token_id), "the tokenizer itself adds these"
    assert not {bos, roles.eos_token_id} & {*prompt_ids, *reference_ids}
    assert think in prompt_ids, "an added token that is not special is a word"
    assert roles.decode(prompt_ids) == prompt_text(problem)
    assert roles.decode(reference_ids) == problem.reference


@pytest.mark.parametrize("name", ["slm", "llm"])
def test_ordinary_text_has_the_ids_that_the_tokenizer_gives_it(name):
    from citer.models.folder import ModelFolder

    shipped = ModelFolder(Path(__file__).parents[2] / "data/pair" / name).tokenizer
    for problem in (tiny.MATH, tiny.MC):
        plain = shipped(prompt_text(problem)).input_ids, shipped(problem.reference).input_ids
        assert prompts_of(shipped, 0).encode(problem) == (plain[0], [*plain[1], 0])


def test_encode_all_keeps_the_order_of_the_problems(tokenizer):
    encoded = prompts_of(tokenizer, 7).encode_all([tiny.MC, tiny.MATH])
    assert list(encoded) == ["mc-0", "math-0"]
    assert encoded["mc-0"] == prompts_of(tokenizer, 7).encode(tiny.MC)


def test_the_plain_formats_digest_is_that_of_stored_routers(tokenizer):
    assert prompts_of(tokenizer, 0, tasks=("mc", "math")).digest == "1844eccbeb2e4866"
    assert prompts_of(tokenizer, 0, tasks=EMBEDDED_TASKS).digest == "1844eccbeb2e4866"


def test_every_task_has_an_example_that_its_own_grader_accepts_if_it_has_one(tokenizer):
    examples = prompts_of(tokenizer, 0, tasks=tuple(TASKS)).examples()
    assert [problem.task for problem in examples] == sorted(TASKS)
    ungraded = [problem.task for problem in examples if problem.answer is None]
    assert ungraded == ["open"]
    assert all(grade(each, each.reference) for each in examples if each.task not in ungraded)


def test_a_task_that_params_yaml_no_longer_names_is_refused_with_what_to_do(tokenizer):
    prompts = prompts_of(tokenizer, tokenizer.eos_token_id, ("mc", "number"))
    wanted = f"^problem {tiny.MATH.problem_id}: task 'math': expected mc, number; run `citer prep"
    with pytest.raises(InputError, match=wanted):
        prompts.encode(tiny.MATH)
