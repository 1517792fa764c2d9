"""A second prompt format: its prompt ids, its answers, and the identity of its pair."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from citer.config.params import DecodeParams, PairParams
from citer.data.problems import Problem
from citer.data.prompts import FORMATS, PromptFormat, PromptSettings, token_ids
from citer.errors import InputError
from citer.labelling.scoring import half_metadata
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.rule import Rule
from citer.serving.deployment import deploy
from tests.decoding.reference import next_logits
from tests.heads import random_router
from tests.tasks import prompt_text
from tests.tiny import MATH, MC, TinyPair, make_tiny_pair

LLM_ALONE = Rule("score", 1.0)
TEMPLATE = "chat_template.jinja"


class RolePrompts(PromptFormat):
    """A format with the tokenizer's own template before a prompt, and a made-up role after it."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(b"roles").hexdigest()[:16]

    def prompt_ids(self, problem: Problem) -> list[int]:
        text = f"{self.tokenizer.chat_template}{prompt_text(problem)}ANSWERER:"
        return token_ids(text, self.tokenizer, begins=True)


ROLES = PromptSettings(kind="chat")
LIMITS = DecodeParams(slots=2, max_new_tokens=8)


@pytest.fixture(autouse=True)
def roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "chat", RolePrompts)


@pytest.fixture
def tiny_pair(tmp_path: Path) -> TinyPair:
    pair = make_tiny_pair(tmp_path)
    for path in pair:
        (path / TEMPLATE).write_text("ASKER: ")
    return pair


@pytest.fixture
def folders(tiny_pair: TinyPair) -> PairFolder:
    return PairFolder(*tiny_pair, ROLES)


@pytest.fixture
def params(tiny_pair: TinyPair) -> PairParams:
    slm, llm = map(str, tiny_pair)
    return PairParams(slm=slm, llm=llm, device="cpu", dtype="float64")


def test_answers_continue_the_prompts_of_the_format(
    folders: PairFolder, params: PairParams, tmp_path: Path
) -> None:
    router = random_router(folders.slm.config.hidden_size)
    write_bundle(tmp_path / "bundle", router, folders.identity(params.dtype))
    deployed = deploy(tmp_path / "bundle", folders, params, LLM_ALONE, LIMITS)
    for reply in deployed.replies([MATH, MC]):
        ids, pair = list(folders.prompts.prompt_ids(reply.problem)), deployed.pair
        assert pair.tokenizer.decode(ids).startswith("ASKER: ")
        for token in reply.answer.token_ids:
            assert token == int(next_logits(pair, pair.llm, ids).argmax())
            ids.append(token)


@pytest.mark.parametrize("delayed", [True, False])
def test_a_router_serves_by_the_schedule_of_its_card(
    folders: PairFolder, params: PairParams, tmp_path: Path, delayed: bool
) -> None:
    router, place = random_router(folders.slm.config.hidden_size), {"batch": 8, "delayed": delayed}
    write_bundle(tmp_path / "bundle", router, folders.identity(params.dtype) | {"serve": place})
    deployed = deploy(tmp_path / "bundle", folders, params, LLM_ALONE, LIMITS)
    assert deployed.engine.delayed is delayed


def test_identities_differ_only_in_the_template(
    tiny_pair: TinyPair, folders: PairFolder, params: PairParams, tmp_path: Path
) -> None:
    plain = PairFolder(*tiny_pair)
    roles_identity = folders.identity(params.dtype)
    plain_identity = plain.identity(params.dtype)
    assert roles_identity == plain_identity | {"template": folders.prompts.digest}
    assert roles_identity != plain_identity
    assert load_pair(folders, params).identity == roles_identity
    for name in ("slm", "llm"):
        half = half_metadata(name, folders, params.dtype)
        assert half["template"] == folders.prompts.digest
    bundle = tmp_path / "bundle"
    write_bundle(bundle, random_router(folders.slm.config.hidden_size), roles_identity)
    with pytest.raises(InputError, match=r"bundle: its template is \w+, here it is \w+"):
        deploy(bundle, plain, params, LLM_ALONE, LIMITS)


def test_a_reference_follows_the_prompt_in_both_formats(folders: PairFolder) -> None:
    encoded = folders.prompts.encode(MATH)
    assert folders.prompts.encode(replace(MATH, reference=None)) == (encoded.prompt_ids, [])
    assert encoded.reference_ids[-1] == folders.slm.eos_ids[0]


class EndedTwice(RolePrompts):
    """A format that ends a completion with one more token if the template says so."""

    def prompt_ids(self, problem: Problem) -> list[int]:
        return token_ids(prompt_text(problem), self.tokenizer, begins=True)

    def completion_ids(self, text: str) -> list[int]:
        more = [5] if self.tokenizer.chat_template == "twice" else []
        return [*super().completion_ids(text), *more]


def test_a_pair_whose_completion_ids_differ_is_refused(
    tiny_pair: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "chat", EndedTwice)
    (tiny_pair.llm / TEMPLATE).write_text("twice")
    with pytest.raises(InputError, match="different ids for a math reference, "):
        PairFolder(*tiny_pair, ROLES)
