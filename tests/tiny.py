"""A tiny random pair in Hugging Face folders: real files, real tokenizer, milliseconds to run."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from citer.data.problems import Choice, Problem
from tests.tasks import prompt_text

EOS = "<|endoftext|>"

MATH = Problem(
    problem_id="math-0",
    task="math",
    question="Ann has 3 bags of 12 apples and eats 5. How many apples are left?",
    choices=None,
    reference="She starts with 3 * 12 = 36 apples. Then 36 - 5 = 31. The answer is \\boxed{31}.",
    answer="31",
    source="tiny",
    split="sft",
)
MC = Problem(
    problem_id="mc-0",
    task="mc",
    question="Which one is a planet?",
    choices=(Choice("A", "Mars"), Choice("B", "the Sun"), Choice("C", "the Moon")),
    reference="Mars goes round the Sun, so it is a planet. The answer is (A).",
    answer="A",
    source="tiny",
    split="sft",
)


class TinyPair(NamedTuple):
    slm: Path
    llm: Path


def make_tiny_pair(
    folder: Path,
    hidden: tuple[int, int] = (32, 48),
    layers: tuple[int, int] = (1, 2),
    vocab: int = 384,
    seed: int = 0,
    equip: Callable[[PreTrainedTokenizerFast], object] = lambda tokenizer: None,
) -> TinyPair:
    """Write `folder/slm` and `folder/llm`: fp32 Qwen2 of one tokenizer, (slm, llm) sizes.

    The tokenizer has at most `vocab` ids, with bytes and EOS (at least 257). `equip` may change it.
    The weights are random and large enough for greedy answers to differ between prompts and models.
    """
    tokenizer = _tokenizer(vocab)
    equip(tokenizer)
    pair = TinyPair(folder / "slm", folder / "llm")
    for index, path in enumerate(pair):
        tokenizer.save_pretrained(path)
        _network(hidden[index], layers[index], tokenizer, seed + index).save_pretrained(path)
    return pair


def _tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d| ?\p{L}+|\s|[^\s\p{L}\d]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for problem in (MATH, MC) for text in (prompt_text(problem), problem.reference)]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS)


def _network(
    hidden: int, layers: int, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)
