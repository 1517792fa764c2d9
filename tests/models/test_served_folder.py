"""The folder of an LLM that a server runs, and what the server says about itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import load_pair
from citer.models.served import SUMS, ServedModel, llm_folder
from tests.completions import Completions, serving
from tests.tiny import TinyPair, make_tiny_pair


def params(folders: TinyPair) -> PairParams:
    return PairParams(slm=str(folders.slm), llm=str(folders.llm), device="cpu", dtype="float32")


def pair_folder(folders: TinyPair, url: str | None) -> PairFolder:
    return PairFolder(folders.slm, llm_folder(folders.llm, url))


@pytest.fixture
def completions(folders: TinyPair) -> Iterator[Completions]:
    pair = load_pair(PairFolder(*folders), params(folders))
    with serving(Completions(pair.llm, pair.tokenizer)) as running:
        yield running


def refusal(folders: TinyPair, url: str) -> str:
    with pytest.raises(InputError) as caught:
        load_pair(pair_folder(folders, url), params(folders))
    return str(caught.value)


def test_a_served_llm_has_the_card_and_the_identity_of_a_local_one(
    folders: TinyPair, completions: Completions
) -> None:
    here, far = (pair_folder(folders, url) for url in (None, completions.url))
    assert far.identity("float32") == here.identity("float32")
    local, served = (load_pair(each, params(folders)) for each in (here, far))
    assert isinstance(served.llm, ServedModel)
    assert served.llm.card == local.llm.card._replace(context=599)
    assert served.identity == local.identity
    assert (served.is_small, served.is_slow) == (False, False)
    assert local.local_llm is local.llm
    with pytest.raises(InputError, match=r"runs elsewhere, expected pair.llm_url: null$"):
        assert served.local_llm


def test_an_answer_must_fit_the_servers_context(
    folders: TinyPair, completions: Completions
) -> None:
    own = ModelFolder(folders.llm).context
    for most, expected in ((100, 99), (own, own - 1), (own + 1, own), (own + 100, own)):
        completions.max_model_len = most
        assert pair_folder(folders, completions.url).context == expected


def test_a_folder_without_weights_needs_their_sums(
    folders: TinyPair, completions: Completions
) -> None:
    weights = folders.llm / "model.safetensors"
    card = load_pair(pair_folder(folders, completions.url), params(folders)).llm.card
    weights.unlink()
    assert refusal(folders, completions.url) == (
        f"{folders.llm}: no weights; expected them, or {SUMS}: the output of "
        "`sha256sum *.safetensors` in the server's folder"
    )
    digests = set()
    for line in ("01ab  model.safetensors\n", "23cd  model.safetensors\n"):
        (folders.llm / SUMS).write_text(line)
        digests.add(llm_folder(folders.llm, completions.url).digest)
    weightless = load_pair(pair_folder(folders, completions.url), params(folders)).llm.card
    assert weightless == card._replace(digest=weightless.digest)
    assert len({card.digest, *digests}) == 3


def test_a_folder_with_weights_is_checked(folders: TinyPair, completions: Completions) -> None:
    weights = folders.llm / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert f"{weights}: not whole safetensors weights" in refusal(folders, completions.url)


def test_one_model_must_be_served(folders: TinyPair, completions: Completions) -> None:
    completions.names = ("llm", "adapter")
    expected = f"{completions.url}: serves llm, adapter; expected one model"
    assert refusal(folders, completions.url) == expected


def test_another_tokenizer_is_refused(
    folders: TinyPair, completions: Completions, tmp_path: Path
) -> None:
    other = make_tiny_pair(tmp_path / "other", vocab=280)
    completions.tokenizer = ModelFolder(other.llm).tokenizer
    expected = f"{completions.url}: `llm` has another tokenizer than {folders.llm}: expected the "
    assert refusal(folders, completions.url).startswith(expected)


def test_another_server_is_refused(folders: TinyPair, completions: Completions) -> None:
    completions.max_model_len = 0  # not vLLM's
    expected = f"{completions.url}/v1/models: data.0.max_model_len: "
    assert refusal(folders, completions.url).startswith(expected)
