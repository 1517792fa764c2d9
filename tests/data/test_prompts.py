from dataclasses import replace

import pytest

from citer.data.prompts import encode, encode_all, prompt
from tests import tiny


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from citer.models.folder import load_tokenizer

    return load_tokenizer(tiny.make_tiny_pair(tmp_path_factory.mktemp("pair")).slm)


def test_math_prompt_to_the_letter():
    assert prompt(replace(tiny.MATH, question="What is {2}?")) == (
        "Solve the problem. Put the final answer in \\boxed{}.\nProblem: What is {2}?\nSolution:\n"
    )


def test_mc_prompt_to_the_letter():
    assert prompt(tiny.MC) == (
        "Choose the right option and name its letter.\n"
        "Question: Which one is a planet?\n"
        "(A) Mars\n"
        "(B) the Sun\n"
        "(C) the Moon\n"
        "Answer:\n"
    )


@pytest.mark.parametrize("problem", [tiny.MATH, tiny.MC])
def test_reference_is_encoded_apart_and_ends_with_eos(tokenizer, problem):
    encoded = encode(problem, tokenizer, eos_id=tokenizer.eos_token_id)
    *reference_ids, last = encoded.reference_ids
    assert last == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in encoded.prompt_ids + reference_ids
    assert tokenizer.decode(encoded.prompt_ids) == prompt(problem)
    assert tokenizer.decode(reference_ids) == problem.reference


def test_prompt_keeps_its_special_tokens_and_reference_has_none(tokenizer):
    from tokenizers.processors import TemplateProcessing

    tokenizer = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, eos_token=tiny.EOS)
    plain = encode(tiny.MATH, tokenizer, eos_id=7)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{tiny.EOS} $A", special_tokens=[(tiny.EOS, tokenizer.eos_token_id)]
    )
    marked = encode(tiny.MATH, tokenizer, eos_id=7)
    assert marked.prompt_ids == [tokenizer.eos_token_id, *plain.prompt_ids]
    assert marked.reference_ids == plain.reference_ids


def test_reference_alone_does_not_change_the_prompt(tokenizer):
    asked = encode(replace(tiny.MC, reference=None), tokenizer, eos_id=7)
    assert asked.prompt_ids == encode(tiny.MC, tokenizer, eos_id=7).prompt_ids
    assert asked.reference_ids == []


def test_all_are_encoded_in_order_by_problem(tokenizer):
    encoded = encode_all([tiny.MC, tiny.MATH], tokenizer, eos_id=7)
    assert list(encoded) == ["mc-0", "math-0"]
    assert encoded["mc-0"] == encode(tiny.MC, tokenizer, eos_id=7)
