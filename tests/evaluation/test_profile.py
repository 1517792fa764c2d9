"""A pair's fit and the cost of routing, computed from configurations alone."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from citer.cli.main import call
from citer.decoding.answer import Visit
from citer.errors import InputError
from citer.evaluation.cost import Trace
from citer.models.size import ModelSize
from citer.pairs.profile import BATCHES, COLUMNS, FRACTIONS, GIB, Agreement, Profile
from citer.stages import paths
from citer.storage.tables import write_json
from tests.configs import LLAMA_8B, LLAMA_70B, QWEN_1_5B, QWEN_72B
from tests.tiny import make_tiny_pair

SEEDS = {"qwen": (QWEN_1_5B, QWEN_72B), "llama": (LLAMA_8B, LLAMA_70B)}
BATCH_1 = BATCHES[0]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Folders of the seeds' pairs, SLM and LLM, without weights."""
    folders: dict[str, list[Path]] = {}
    for name, configs in SEEDS.items():
        folders[name] = [tmp_path_factory.mktemp(name) for _ in configs]
        for folder, config in zip(folders[name], configs, strict=True):
            (folder / "config.json").write_text(json.dumps(config))
    return folders


@pytest.fixture(scope="module")
def sizes(pairs: dict[str, list[Path]]) -> dict[str, list[ModelSize]]:
    return {
        name: [ModelSize.of(folder, "bfloat16") for folder in folders]
        for name, folders in pairs.items()
    }


@pytest.fixture(params=SEEDS)
def pair(request: pytest.FixtureRequest, sizes: dict[str, list[ModelSize]]) -> list[ModelSize]:
    return sizes[request.param]


def profile(pair: list[ModelSize], devices: int = 1, memory: float = 80) -> Profile:
    return Profile(*pair, devices, memory, slots=32, positions=512)


def test_the_slm_alone_and_the_llm_for_every_token_have_the_cost_model_s_bytes(
    pair: list[ModelSize],
) -> None:
    """384 tokens of prompt and 128 of the answer are the 512 positions."""
    of = profile(pair)
    each = [Visit(0, n, n) for n in range(128)]
    replaced = [Visit(1, n, n) for n in range(128)]
    alone = of.prices.moved(*BATCH_1.work([Trace.of(384, 128, each)]))
    for fraction, visits in {0.0: [], 1.0: replaced}.items():
        moved = of.prices.moved(*BATCH_1.work([Trace.of(384, 128, visits)]))
        assert of.cost(fraction, BATCH_1) == pytest.approx(moved / alone, rel=1e-9)


def test_routing_pays_up_to_the_share_at_which_the_cost_is_1(pair: list[ModelSize]) -> None:
    of = profile(pair)
    for batch in BATCHES:
        share = of.pays_to(batch)
        assert 0 < share < 1
        assert of.cost(share, batch) < 1 <= of.cost(share + 0.01, batch)


def test_a_router_on_two_equal_models_cannot_pay(sizes: dict[str, list[ModelSize]]) -> None:
    of = profile([sizes["qwen"][0]] * 2)
    assert [of.pays_to(batch) for batch in BATCHES] == [0] * len(BATCHES)


@pytest.mark.parametrize(
    ("devices", "memory", "fits"),
    [(1, 80, "no"), (1, 192, "one"), (2, 80, "map"), (4, 141, "one"), (3, 40, "no")],
)
def test_the_fit_of_1_5b_and_72b(
    sizes: dict[str, list[ModelSize]], devices: int, memory: float, fits: str
) -> None:
    """Weights 138.3 GiB, 32 x 512 positions 5.4 GiB."""
    of = profile(sizes["qwen"], devices, memory)
    assert of.needed / GIB == pytest.approx(143.7, abs=0.1)
    assert of.fits_one == (memory > 143.7)
    assert (of.left < 0) == (fits == "no")
    room = memory if of.fits_one else devices * memory
    assert of.left == pytest.approx(room * GIB - of.needed, abs=1e3)


def test_the_command_prints_a_pair_and_its_costs(
    pair: list[ModelSize],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # a probe in the checkout adds its own costs
    slm, llm = (str(size.model.path) for size in pair)
    command = ["profile", "--slm", slm, "--llm", llm, "--dtype", "bfloat16"]
    of = profile(pair)
    assert call([*command, "--devices", "4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"parameters {pair[0].parameters:,} {pair[1].parameters:,}" in text
    assert "They fit on 4 x 80 GiB with pair.llm_device_map: auto" in text
    costs = " ".join(f"{of.cost(fraction, BATCH_1):.2f}" for fraction in FRACTIONS)
    assert f"1 {costs} {of.pays_to(BATCH_1):g}" in text
    assert text.endswith("no tokenizer.json, so the tokenizers were not compared.")


# By batch 1, 8, 32 and 128. Where the models disagree, every fourth token is the LLM's.
AGREED = Agreement(
    0.75,
    400,
    {
        "score 1": [(0, 1), (0, 1 / 8), (0, 1 / 32), (0, 1 / 128)],
        "every 2 audit 1": [(1.2, 0.5), (0.2, 0.1), (0.05, 0.02), (0.02, 0.01)],
        "every 4 audit 1": [(1.4, 0.4), (0.25, 0.11), (0.05, 0.02), (0.02, 0.01)],
        "risk 0.5 audit 1 by entropy": [(1.1, 0.3), (0.2, 0.1), (0.05, 0.02), (0.02, 0.01)],
        "risk 0.5 audit 1 from lookup": [(0, 0.1)] * 4,  # no draft of the SLM: in no column
        "every 4 audit 1 from both": [(0.1, 0.1)] * 4,
        "bound": [(1, 0.25), (0.13, 0.08), (0.04, 0.02), (0.01, 0.01)],
    },
)


def test_measured_rules_have_the_bytes_of_their_forwards_at_other_sizes(
    pair: list[ModelSize],
) -> None:
    """At batch 8 a forward reads the weights once, and 1,024 keys and values of each answer."""
    slm, llm = (size.model for size in pair)
    of, rules = profile(pair), AGREED.rules
    own = 0.25 * slm.weight_bytes + 0.11 * llm.weight_bytes
    own += 1024 * (1.4 * slm.kv_bytes + 0.4 * llm.kv_bytes)
    alone = llm.weight_bytes / 8 + 1024 * llm.kv_bytes
    assert of.moved(rules["every 4 audit 1"], 1, 1024) == pytest.approx(own)
    head = of.prices.slm_weights - slm.weight_bytes
    by_head = of.moved(rules["every 4 audit 1"], 1, 1024, by_head=True)
    assert by_head == pytest.approx(own + 0.25 * head, rel=1e-12)
    assert of.moved(rules["score 1"], 1, 1024) == pytest.approx(alone)


def test_a_share_costs_what_the_profile_says(pair: list[ModelSize]) -> None:
    """Its 512 positions hold 384 of a prompt, and on average half of an answer."""
    of = profile(pair)
    routed, alone = of.at_share(0.1)
    for place, batch in enumerate(COLUMNS):
        share = of.moved(routed, place, 448, by_head=True) / of.moved(alone, place, 448)
        if batch in BATCHES:
            assert share == pytest.approx(of.cost(0.1, batch), rel=0.003)
        assert share < 1


def test_after_a_probe_the_command_prices_its_rules(
    pairs: dict[str, list[Path]],
    pair: list[ModelSize],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_json(paths.AGREEMENT, asdict(AGREED))
    slm, llm = (str(size.model.path) for size in pair)
    command = ["profile", "--slm", slm, "--llm", llm, "--dtype", "bfloat16"]
    assert call(command) == 0
    shown = capsys.readouterr().out
    assert "75.0% of 400 positions" in shown
    assert "deployed" not in shown
    of, rules = profile(pair), AGREED.rules
    best = [rules[name] for name in ("risk 0.5 audit 1 by entropy", "every 4 audit 1", "bound")]
    costs = [of.moved(own, 0, 8192) / of.moved(rules["score 1"], 0, 8192) for own in best]
    line = " ".join(f"{cost:.2f}" for cost in costs)
    assert f" 1 8,192 {line} 8 8,192 " in " ".join(shown.split())
    write_json(paths.SUMMARY / "headline.json", {"llm_fraction": 0.05})
    assert call(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    routed, alone = of.at_share(0.05)
    share = of.moved(routed, 0, 8192, by_head=True) / of.moved(alone, 0, 8192)
    assert "deployed, f 0.05" in shown
    assert f" 1 8,192 {line} {share:.2f} 8 8,192 " in shown


def test_two_tokenizers_have_no_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (make_tiny_pair(tmp_path / str(size), vocab=size) for size in (384, 300))
    command = ["profile", "--dtype", "float32", "--slm", str(one.slm), "--llm"]
    for llm, differ in ((one.llm, False), (other.llm, True)):
        assert call([*command, str(llm)]) == 0
        text = capsys.readouterr().out
        assert ("pays up to" in text, "not compared" in text) == (not differ, False)
        said = "No routing between these models: they have two tokenizers, their `model` differs."
        assert (said in text) == differ


def test_positions_beyond_the_context_are_refused(pair: list[ModelSize]) -> None:
    with pytest.raises(InputError, match=r"^--positions: 200000 tokens, expected at most \d+, the"):
        Profile(*pair, 1, 80, slots=1, positions=200_000)


def test_an_slm_in_8_bits_costs_a_quarter_of_one_in_32(
    pairs: dict[str, list[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slm, llm = map(str, pairs["qwen"])
    text, found = Path("params.yaml").read_text(), []
    monkeypatch.chdir(tmp_path)
    for weights in ("stored", "int8"):
        Path("params.yaml").write_text(text.replace("weights: stored", f"weights: {weights}"))
        assert call(["profile", "--slm", slm, "--llm", llm]) == 0
        found += re.findall(r"read per token +(\S+) GiB +(\S+) GiB", capsys.readouterr().out)
    (stored, llm_stored), (rounded, llm_rounded) = found
    assert float(rounded) / float(stored) == pytest.approx(0.25, rel=0.005)
    assert llm_rounded == llm_stored


def test_a_quantised_slm_is_refused_as_in_a_run(
    pairs: dict[str, list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((pairs["qwen"][0] / "config.json").read_text())
    quantised = config | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(quantised))
    llm = str(pairs["qwen"][1])
    assert call(["profile", "--slm", str(tmp_path), "--llm", llm, "--dtype", "bfloat16"]) == 2
    assert f"{tmp_path}/config.json: quantization_config: only an LLM" in capsys.readouterr().err
