"""From rows with `messages` to a router whose card has all that its prompts need."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from citer.config.params import DecodeParams, Params, load_params
from citer.data.prompts import ChatParams
from citer.errors import InputError
from citer.models.bundle import read_card
from citer.models.sampling import ALL_GREEDY
from citer.rule import LLM
from citer.serving.deployment import deploy, served_pair
from citer.serving.generate import generate
from citer.stages import (
    finetune,
    label,
    paths,
    prepare,
    references,
    router0,
    score_llm,
    score_slm,
    train,
)
from citer.storage.tables import read_json, table_metadata
from flows.tracking.serving import RoutedModel
from tests.decoding.reference import next_logits
from tests.stages.conftest import ROOT
from tests.stages.sections import with_section
from tests.templates import QWEN3, add_roles
from tests.tiny import make_tiny_pair

FIRST = {"role": "user", "content": "What is 20 + 3?"}
EARLIER = [FIRST, {"role": "assistant", "content": "It is 23."}]
MC = {"question": "A planet?", "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]}}
CHAT = ChatParams(system="Be brief.", variables={"enable_thinking": False})
STOP = ["a", "i", "n", "s", "t"]
# Rows of the only task of the router.
KNOWN = "`problem` (math) or `question` and `answer` with #### (gsm8k)"


def row(n: int, *, training: bool = True) -> dict:
    turns = [*(EARLIER if n % 2 else []), {"role": "user", "content": f"What is {n} + {n}?"}]
    solution = {"solution": f"{n} + {n} = \\boxed{{{2 * n}}}"} if training else {}
    return {"messages": turns} | solution


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project of one file of conversations and a pair with Qwen3's template."""
    shipped = load_params(ROOT / "citer/config/params.yaml")
    monkeypatch.chdir(tmp_path)
    slm, llm = make_tiny_pair(Path("models"), equip=partial(add_roles, template=QWEN3))
    own = Path("data/own/sums.jsonl")
    own.parent.mkdir(parents=True)
    own.write_text("\n".join(json.dumps(row(n)) for n in range(40)))
    source = {"path": str(own), "task": "math"}
    content = shipped.model_dump(by_alias=True, mode="json")
    content["iterations"] = {"1": {"previous": "0"}}
    content["pair"] |= {"slm": str(slm), "llm": str(llm), "device": "cpu"}
    content["pair"] |= {"prompt": "chat", "chat": CHAT.model_dump(), "stop": STOP}
    content["prepare"] |= {"toy": None, "train": [source]}
    content["finetune"]["epochs"] = 0
    content["train"] |= {"batch_size": 16, "epochs": 2}
    for section in ("decode", "answer"):
        content[section] |= {"slots": 2, "max_new_tokens": 12}
    return Params.model_validate(content)


@pytest.fixture
def bundle(params: Params) -> Path:
    for stage in (prepare, references, score_llm, finetune, score_slm, router0):
        stage.run(params)
    label.run(params, 1)
    train.run(params, 1)
    return paths.router(1)


def lines(file: Path) -> Iterator[dict]:
    return map(json.loads, file.read_text().splitlines())


def test_a_router_of_conversations_answers_without_the_settings_of_params(
    params: Params, bundle: Path
) -> None:
    assert table_metadata(paths.problems("sft"))["tasks"] == ["math"]
    for folder in (bundle, paths.router(0), paths.COMMON):
        assert read_card(folder).prompts == params.prompts
    elsewhere = with_section(params, "pair", prompt="plain", chat=ChatParams(), stop=())
    source, output = Path("questions.jsonl"), Path("answers.jsonl")
    asked = [row(n, training=False) for n in range(50, 62)]
    source.write_text("\n".join(map(json.dumps, asked)))
    generate(elsewhere, bundle, source, output, LLM)

    limits = DecodeParams(slots=2, max_new_tokens=12)
    deployment = deploy(bundle, served_pair(bundle, params.pair), elsewhere.pair, LLM, limits)
    pair = deployment.pair
    cut = 0
    turns = {"role": "system", "content": CHAT.system}
    for wanted, answer in zip(asked, lines(output), strict=True):
        *before, last = wanted["messages"]
        question = last | {"content": last["content"] + "\nPut the final answer in \\boxed{}."}
        prompt = pair.tokenizer.apply_chat_template(
            [turns, *before, question], add_generation_prompt=True, enable_thinking=False
        )
        ids = list(prompt["input_ids"])
        while len(ids) < len(prompt["input_ids"]) + 12 and ids[-1] not in pair.eos_ids:
            ids.append(int(next_logits(pair, pair.llm, ids).argmax()))
        text = pair.tokenizer.decode(ids[len(prompt["input_ids"]) :], skip_special_tokens=True)
        assert answer["completion"] == re.split("[aints]", text)[0]
        cut += answer["completion"] != text
        assert answer["question"] == last["content"]

    assert cut

    model = RoutedModel()
    model.deployment, model.sampler = deployment, ALL_GREEDY
    expected = [answer["completion"] for answer in lines(output)]
    assert model.predict(None, asked).completion.tolist() == expected
    assert model.predict(None, pd.DataFrame(asked)).completion.tolist() == expected
    [error] = model.predict(None, [MC]).error
    assert error.endswith(f"; expected {KNOWN}")


def test_other_templates_are_refused_before_a_model_is_loaded(
    params: Params, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.deployment.load_pair", None)
    source, output = Path("questions.jsonl"), Path("answers.jsonl")
    source.write_text(json.dumps({"messages": [FIRST]}))
    card = read_json(bundle / "router.json")
    for changed in ({"system": "Be long."}, {"variables": {}}):
        card["prompts"]["chat"] = CHAT.model_dump() | changed
        (bundle / "router.json").write_text(json.dumps(card))
        with pytest.raises(InputError, match="its template is"):
            generate(params, bundle, source, output, LLM)
    (paths.SLM / "chat_template.jinja").unlink()
    with pytest.raises(InputError, match=f"^{paths.SLM}: no chat template; expected"):
        generate(params, bundle, source, output, LLM)
    assert not output.exists()
