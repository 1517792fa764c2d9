from dataclasses import asdict
from pathlib import Path

import pytest

from citer.config.params import DecodeParams, Params, load_params
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.serving.deployment import Deployment, deploy, served_pair
from citer.storage.tables import read_json, write_json
from tests.generate.project import MATH, MAX_NEW_TOKENS, RULE, Project, own_pair
from tests.heads import random_router
from tests.tiny import make_tiny_pair


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Make a project folder with a finetuned SLM. Answers are short."""
    loaded = load_params()
    slm, llm = make_tiny_pair(tmp_path / "pair")
    monkeypatch.chdir(tmp_path)
    Path("data/models").mkdir(parents=True)
    slm.rename("data/models/slm")
    pair = loaded.pair.model_copy(update={"llm": str(llm), "slm": str(slm)})
    limits = DecodeParams(slots=2, max_new_tokens=MAX_NEW_TOKENS)
    return loaded.model_copy(update={"pair": pair, "answer": limits})


@pytest.fixture
def bundle(params: Params, tmp_path: Path) -> Path:
    pair = own_pair(params)
    router = random_router(pair.slm.hidden_size)
    write_bundle(tmp_path / "bundle", router, pair.identity | {"threshold": {"rule": asdict(RULE)}})
    return tmp_path / "bundle"


@pytest.fixture
def project(params: Params, bundle: Path, tmp_path: Path) -> Project:
    made = Project(params, bundle, tmp_path)
    made.write(MATH)
    return made


@pytest.fixture
def of_numbers(project: Project) -> Project:
    """The project with a router that was trained on the tasks `exact` and `number`."""
    file, pair = project.bundle / "router.json", project.params.pair
    card = read_json(file) | {"prompts": {"tasks": ["exact", "number"]}}
    write_json(file, card)
    write_json(file, card | served_pair(project.bundle, pair).identity(pair.dtype))
    return project


@pytest.fixture
def deployment(params: Params, bundle: Path) -> Deployment:
    folders = PairFolder(Path("data/models/slm"), Path(params.pair.llm))
    return deploy(bundle, folders, params.pair, RULE, params.answer)
