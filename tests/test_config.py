import re
from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.data.tasks.own import FORM
from citer.errors import InputError
from citer.executors.base import WorkerParams
from citer.rule import EXPECTED, Rule

SHIPPED = Path(__file__).parents[1] / "citer/config/params.yaml"
CHAT = "{system: null, variables: {}}"
TASKS = f"'math', 'mc', 'number', 'exact', 'contains', 'json', 'open' or {FORM}"
RULE = "risk 0.9 audit 0.1"
SECTIONS = (
    "iterations, seed, pair, decode, prepare, references, finetune, score, label, train, "
    "evaluate, serve, answer, register"
)


URLS = [
    ("127.0.0.1:8000", "'127.0.0.1:8000': expected http://HOST:PORT"),
    ("http://host:port", "'http://host:port': expected http://HOST:PORT"),
    ("http://me:secret@host:1", "expected http://HOST:PORT, without a name and a password"),
]


@pytest.fixture
def edited(tmp_path):
    def edit(*texts):
        """Replace the first text by the second, the third by the fourth, ..."""
        text = SHIPPED.read_text()
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            assert old in text, f"params.yaml no longer holds {old!r}"
            text = text.replace(old, new, 1)
        path = tmp_path / "params.yaml"
        path.write_text(text)
        return path

    return edit


def complaint(path):
    with pytest.raises(InputError) as caught:
        load_params(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(str(path))


def complaints(path):
    with pytest.raises(InputError) as caught:
        load_params(path)
    return [line.removeprefix(f"{path}: ") for line in str(caught.value).split("\n")]


def test_an_llm_behind_a_server_is_not_sampled(edited):
    url = "llm_url: null", "llm_url: http://host:8000/v1"
    path = edited(*url, "sampling: null", "sampling: {temperature: 1.0}")
    expected = ": top level: evaluate.sampling: expected null: an LLM behind a server"
    assert complaint(path).startswith(expected)


def test_a_rule_for_vllm_is_certified_by_greedy_answers(edited):
    path = edited("engine: citer", "engine: vllm", "sampling: null", "sampling: {temperature: 1.0}")
    assert complaint(path).startswith(": top level: evaluate.sampling: expected null, since vLLM")


def test_shipped_params_load_frozen():
    params = load_params(SHIPPED)
    assert params.label.rule == Rule.parse(RULE)
    assert params.prepare.toy.tasks == ("math", "mc")
    assert params.register_.model_name == "citer-router"
    with pytest.raises(ValueError, match="frozen"):
        params.label.rule = "score 0.5"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        *(("llm_url: null", f"llm_url: {url}", f"pair.llm_url: {said}") for url, said in URLS),
        (
            "llm_url: null",
            "llm_url: http://host\n  llm_device_map: auto",
            "pair: llm_device_map: the LLM runs at llm_url; expected only one of them",
        ),
        ("pair:", "pear: {}\npair:", f"top level: unknown key 'pear'; expected {SECTIONS}"),
        ('"2": {previous', '"3": {previous', "iterations: '3' after '1': expected \"2\": {prev"),
        ('previous: "1"', 'previous: "0"', "iterations: '2' after '0': expected \"2\": {previo"),
        ('"2": {previous: "1"}', '2: {previous: "1"}', "iterations.2.[key]: 2: expected a valid s"),
        ("  device: auto", "", 'pair.device: missing; default: "auto"'),
        ("device: auto", "device: gpu", "pair.device: 'gpu': expected 'auto', 'cpu' or 'cuda'"),
        ("sft: 1500", "sft: true", "prepare.toy.sft: True: expected a valid integer"),
        ("sft: 1500", "sft: 0", "prepare.toy.sft: 0: expected greater than 0"),
        ("[math, mc]", "[math, chess]", "prepare.toy.tasks.1: 'chess': expected 'math' or 'mc'"),
        ("[math, mc]", "[]", "prepare.toy.tasks: []: expected at least 1"),
        (
            "train: []",
            "train: [{path: data/own/a.json, task: art}]",
            f"prepare.train.0.task: 'art': expected {TASKS}",
        ),
        *(
            (
                "test: []",
                f"test: [{{path: {path}, task: mc}}]",
                f"prepare.test.0.path: '{path}': expected a file under data/own",
            )
            for path in ("a.json", "/data/own/a.json", "data/own/../a.json", "data/owned.json")
        ),
        ("sft: 0.6", "sft: 0.7", "prepare.shares: shares must sum to 1, they sum to 1.1"),
        (RULE, "score 1.5", f"label.rule: 'score 1.5': {EXPECTED}"),
        (RULE, "0.9", f"label.rule: 0.9: {EXPECTED}"),
        (RULE, "[score, 0.9]", f"label.rule: ['score', 0.9]: {EXPECTED}"),
        (RULE, "risk 0.8 by narrow", "label.rule: 'risk 0.8 by narrow': by 'narrow', expected one"),
        ("processes: 1", "processes: 3", "finetune.processes: 3: not a divisor of finetune.batch"),
        (
            "deepspeed: auto # on, off, or auto: only on a GPU\n  processes: 1",
            "deepspeed: off\n  processes: 2",
            "finetune.processes: 2: needs DeepSpeed, expected 1 or finetune.deepspeed: on",
        ),
        ("risks: [0.2", "risks: [1.3", "evaluate.risks.0: 1.3: expected less than or equal to 1"),
        ("risks: [0.2", "risks: [-1", "evaluate.risks.0: -1: expected greater than or equal to 0"),
        ("audits: [0.25", "audits: [0", "evaluate.audits.0: 0: expected greater than 0"),
        ("audits: [0.25", "audits: [1.1", "evaluate.audits.0: 1.1: expected less than or equal to"),
        ("gammas: [1,", "gammas: [0,", "evaluate.gammas.0: 0: expected greater than 0"),
        (
            "[citer, audited,",
            "[citer, random,",
            "evaluate.candidates.1: 'random': expected 'citer', 'audited', 'citer_s', 'co_llm', "
            "'entropy', 'bild', 'speculative', 'lookup', 'exact' or 'any'",
        ),
        ("bounds: [random,", "bounds: [rndom,", "evaluate.bounds.0: 'rndom': expected 'random', "),
        ("epsilon: 0.05", "epsilon: .nan", "evaluate.epsilon: nan: expected a finite number"),
        ("seed: 17", "seed: -1", "seed: -1: expected greater than or equal to 0"),
        (
            "name: citer-router",
            "name: a/b",
            r"register.model_name: 'a/b': expected text that matches ^[\w-][\w.-]{0,199}$",
        ),
        ("name: citer-router", "name: ..", "register.model_name: '..': expected text that matches"),
        ("experiment: citer", "experiment: ''", "register.experiment: '': expected at least 1"),
        (f" {RULE}", "", f"label.rule: None: {EXPECTED}"),
        ("batches: [1, 8", "batches: [1, 0", "evaluate.batches.1: 0: expected greater than 0"),
        ("sft: 1500", f"sft: {10**30}", f"prepare.toy.sft: {10**30}: expected less than or equal"),
        ("slots: 128", f"slots: {10**30}", f"decode.slots: {10**30}: expected less than"),
        ("_length: 512", f"_length: 0x{'f' * 5000}", "finetune.max_length: int too long to print"),
        ("slm: data/pair/slm", f"slm: {'x' * 5000}", f"pair.slm: '{'x' * 76}...: expected a path"),
        ("slm: data/pair/slm", "slm: ''", "pair.slm: '': expected a path with "),
        ("slm: data/pair/slm", 'slm: "a\\0b"', "pair.slm: 'a\\x00b': expected a path with "),
        ("prompt: plain", "prompt: roles", "pair.prompt: 'roles': expected 'plain' or 'chat'"),
        (CHAT, "{system: '', variables: {}}", "pair.chat.system: '': expected at least 1"),
        (CHAT, "{sistem: null}", "pair.chat: unknown key 'sistem'; expected system, variables"),
        (CHAT, "{variables: {day: 2024-07-26}}", "pair.chat.variables.day: datetime.date(2024, 7"),
        (CHAT, "{system: Be brief.}", "pair: chat: not read by plain prompts; expected prompt: ch"),
        ("stop: []", "stop: END", "pair.stop: 'END': expected a list"),
        ("  batch: 1", "  batch: 0", "serve.batch: 0: expected greater than 0"),
        ("  batch: 1", "  slots: 1", "serve: unknown key 'slots'; expected shadow, shadow_deadl"),
        ("stop: []", "stop: ['']", "pair.stop.0: '': expected at least 1"),
    ],
)
def test_one_line_names_key_value_and_expectation(edited, old, new, expected):
    assert complaint(edited(old, new)).startswith(f": {expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("device: auto", "device: [auto", ":12:3: not YAML: expected ',' or ']'"),
        ("  device: auto", "\tdevice: auto", ":11:1: not YAML: found character '\\t'"),
        ("device: auto", "device: auto\n  slm: a", ':12:3: not YAML: found duplicate key "slm"'),
        ("device: auto", "device: \a", ": not YAML: unacceptable character #x0007: special"),
        ("device: auto", "device: " + "[" * 5000, ": not YAML: maximum recursion depth exceeded"),
        ("device: auto", "device: " + "9" * 5000, ": not YAML: Exceeds the limit"),
        ("device: auto", "device: 2001-99-99", ": not YAML: month must be in 1..12"),
        ("device: auto", "device: !!int x", ": not YAML: invalid literal for int()"),
        ("device: auto", "device: !!bool x", ": not YAML: 'x'"),
    ],
)
def test_what_is_not_yaml_is_refused_in_a_line(edited, old, new, expected):
    assert complaint(edited(old, new)).startswith(expected)


def test_a_file_of_another_version_gets_a_line_for_each_error_with_the_default(edited):
    path = edited(
        *("device: auto", "devise: auto"),
        *("slots: 128", "slots: many"),
        *("  max_length: 512", ""),
        *("\nregister:", "\nregistry:"),
    )
    known = "slm, llm, device, dtype, slm_weights, cuda_graphs, llm_device_map, llm_url, prompt"
    known += ", chat, stop"
    assert complaints(path) == [
        'pair.device: missing; default: "auto"',
        f"pair: unknown key 'devise'; expected {known}",
        "decode.slots: 'many': expected a valid integer; default: 128",
        "finetune.max_length: missing; default: 512",
        'register.model_name: missing; default: "citer-router"',
        'register.experiment: missing; default: "citer"',
        "register.margin: missing; default: 0.02",
        "register.byte_margin: missing; default: 0.02",
        f"top level: unknown key 'registry'; expected {SECTIONS}, workers",
    ]


def without_toy(text):
    start, end = text.index("  toy:"), text.index("  train: []")
    return text[:start] + "  toy: null\n" + text[end:]


def test_prepare_needs_a_source(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(without_toy(SHIPPED.read_text()))
    assert complaint(path) == ": prepare: no source; expected `toy` or at least one `train` file"


def test_train_files_need_a_share_to_go_to(edited):
    path = edited(
        "train: []",
        "train: [{path: data/own/a, task: mc}]",
        "  test: []",
        "  test: [{path: data/own/b, task: mc}]",
        "{sft: 0.6, preference: 0.2, validation: 0.1, test: 0.1}",
        "{sft: 0.0, preference: 0.0, validation: 0.0, test: 1.0}",
    )
    assert "expected one above 0" in complaint(path)


def test_a_split_with_a_file_of_its_own_has_no_share(edited):
    path = edited("test: []", "test: [{path: data/own/own.json, task: math}]")
    expected = {"sft": 0.6, "preference": 0.2, "validation": 0.1}
    assert load_params(path).prepare.dealt_shares() == expected


@pytest.mark.parametrize(("section", "missing"), [("serve", 6), ("references", 2)])
def test_a_section_that_dvc_reads_is_asked_for_with_its_defaults(edited, section, missing):
    """DVC would stop at a missing key only when it comes to the stage that reads it."""
    path = edited()
    path.write_text(without_section(path.read_text(), f"{section}:"))
    lines = complaints(path)
    assert all(re.match(rf"{section}\.\w+: missing; default: ", line) for line in lines)
    assert len(lines) == missing


def without_section(text, name):
    return re.sub(rf"^{name}.*\n( .*\n)*", "", text, flags=re.MULTILINE)


def test_numbers_without_a_point_can_be_floats(edited):
    path = edited("learning_rate: 1.0e-3", "learning_rate: 1e-3")
    assert load_params(path).train.learning_rate == 0.001


def test_a_rule_is_read_and_written_as_text(edited):
    label = load_params(edited(RULE, "every 8 audit 1")).label
    assert label.rule == Rule("every", 8, 1)
    assert label.model_dump()["rule"] == "every 8 audit 1.0"
    assert type(label).model_validate_json(label.model_dump_json()) == label


@pytest.mark.parametrize("key", ["risks", "audits", "gammas", "bounds"])
def test_a_study_need_not_try_every_method(edited, key):
    line = next(line for line in SHIPPED.read_text().splitlines() if f"{key}:" in line)
    assert getattr(load_params(edited(line, f"  {key}: []")).evaluate, key) == ()


def test_an_older_file_has_no_workers(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(SHIPPED.read_text().partition("\nworkers:")[0])
    assert load_params(path).workers == WorkerParams()
