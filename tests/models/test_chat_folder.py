"""The EOS ids and the prompts of folders whose tokenizers have role tokens and chat templates."""

from functools import partial
from pathlib import Path

import pytest
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from citer.data.prompts import ChatParams, PromptSettings
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from citer.models.tokenizer import named_eos_ids
from tests.models.conftest import edit
from tests.templates import CHATML, GEMMA, add_roles
from tests.tiny import EOS, MATH, TinyPair, make_tiny_pair

CHAT = PromptSettings(kind="chat")
TOOLS = "{%- if tools -%}{{ tools }}{%- endif -%}"


@pytest.fixture
def folders(tmp_path: Path) -> TinyPair:
    return make_tiny_pair(tmp_path, equip=partial(add_roles, template=CHATML))


def template(folder: Path) -> Path:
    return folder / "chat_template.jinja"


def names(folder: ModelFolder) -> list[str]:
    return folder.tokenizer.convert_ids_to_tokens(list(folder.eos_ids))


def test_the_ends_of_turns_are_eos_and_the_templates_own_end_is_the_first(
    folders: TinyPair,
) -> None:
    plain, chat = ModelFolder(folders.slm), ModelFolder(folders.slm, CHAT)
    assert names(plain) == [EOS, "<|im_end|>", "<|eot_id|>", "<end_of_turn>"]
    assert names(chat) == ["<|im_end|>", EOS, "<|eot_id|>", "<end_of_turn>"]
    assert plain.prompts.encode(MATH).reference_ids[-1] == plain.eos_ids[0]
    assert chat.prompts.encode(MATH).reference_ids[-1] == chat.eos_ids[0]
    assert PairFolder(*folders, CHAT).vocabulary.eos_ids == chat.eos_ids


def test_all_three_files_may_name_an_eos(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", eos_token_id=[7, 5, 7])
    edit(folders.llm / "config.json", eos_token_id=6)
    assert ModelFolder(folders.llm).eos_ids[:4] == (7, 5, 6, 0)


def test_an_end_of_turn_without_an_embedding_is_no_eos(folders: TinyPair) -> None:
    tokenizer = ModelFolder(folders.slm).tokenizer
    size = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    assert named_eos_ids(tokenizer, size) == [0, tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_a_template_whose_token_has_no_embedding_is_refused(tmp_path: Path) -> None:
    def equip(tokenizer: PreTrainedTokenizerFast) -> None:
        add_roles(tokenizer, CHATML.replace("<|im_start|>", "<|late|>"))
        tokenizer.add_tokens([AddedToken("<|late|>", special=True)])

    folders = make_tiny_pair(tmp_path, equip=equip)
    network = AutoModelForCausalLM.from_pretrained(folders.slm)
    last = network.config.vocab_size - 1
    network.resize_token_embeddings(last)
    network.save_pretrained(folders.slm)
    assert PairFolder(*folders).vocabulary.size == last, "plain prompts do not use it"
    with pytest.raises(InputError) as caught:
        PairFolder(*folders, CHAT)
    assert str(caught.value) == (
        f"{folders.slm} and {folders.llm}: '<|late|>' of a prompt has the id {last}, "
        f"expected one below {last}, the smaller vocabulary"
    )


def test_both_models_get_the_slms_prompts_if_their_templates_differ_elsewhere(
    folders: TinyPair,
) -> None:
    template(folders.llm).write_text(CHATML + TOOLS)
    pair = PairFolder(*folders, CHAT)
    assert pair.prompts.digest == ModelFolder(folders.slm, CHAT).prompts.digest
    template(folders.llm).write_text(CHATML.replace("<|im_start|>", "<|start_header_id|>"))
    with pytest.raises(InputError, match="different ids for a math prompt, expected those of one"):
        PairFolder(*folders, CHAT)


def test_a_folder_without_a_usable_template_is_named(folders: TinyPair) -> None:
    template(folders.llm).write_text(GEMMA)
    chat = PromptSettings(kind="chat", chat=ChatParams(system="Be brief."))
    with pytest.raises(InputError) as caught:
        PairFolder(*folders, chat)
    assert str(caught.value) == (
        f"{folders.llm}: the chat template refuses the turns system, user, assistant: "
        "System role not supported"
    )
    template(folders.llm).unlink()
    with pytest.raises(InputError, match=r"llm: no chat template; expected chat_template\.jinja"):
        PairFolder(*folders, CHAT)
    assert PairFolder(*folders).prompts.digest == "1844eccbeb2e4866"
