"""The registered model: its versions, and the aliases that say which version serves."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.utils.file_utils import local_file_uri_to_path
from mlflow.utils.uri import is_local_uri

from citer.config.params import Params, load_params
from citer.errors import InputError, without_password
from citer.progress import say
from citer.storage.tables import read_json, replacing
from flows.dvc_commands import push
from flows.tracking import describe
from flows.tracking.answers import judge
from flows.tracking.contents import Iteration, children, track, track_early
from flows.tracking.store import ERRORS, Store, exclusively, home, make_store, open_store, reported
from flows.tracking.uses import count_use

CHAMPION, CHALLENGER = "champion", "challenger"  # aliases of versions
PROMOTED, KEPT_BACK = "promoted", "kept back"
AGAINST = "judged_against"  # a tag: the number of the champion that the gate compared, or none
DESCRIPTION = (
    "Routers between a small and a large language model, each with its finetuned small model. "
    "To ask the champion, run in the project's folder: "
    '`mlflow.pyfunc.load_model("models:/{name}@champion").predict(["a question"])`.'
)


class Registration(NamedTuple):
    """What a retraining has registered."""

    sentence: str  # the gate's decision and the champion
    kept_back: ModelVersion | None  # what the gate has now decided against


@reported()
def register_run(stages: Iterable[str], early: Iteration | None = None) -> Registration | None:
    """Log the retraining in the current folder, register its routers, and judge the last one.

    With `early` only this router, before the retraining has its last: None if none is open. Routers
    that are registered already are left unchanged. Their data are on DVC's remote, if there is one,
    before the champion changes. `stages` are those of dvc.yaml. Raises InputError if the champion
    has no run, or if the experiment is deleted; TemporaryError if the push fails.
    """
    params = load_params()
    store = make_store(params.register_.experiment)
    with exclusively():
        run = track_early(store, params, early) if early else track(store, params, stages)
        if not run:
            return None
        routers = children(store, run.info.run_id) or [run]
        last = _register(store, routers, params)
    # A completed registration tags its run. One that was deleted and logged again has no tag.
    complete = "version" in run.data.tags or last.run_id != routers[-1].info.run_id
    known = complete and "decision" in last.tags
    push(whole=not early)  # an early router's later stages have no outputs yet
    if not known:
        with exclusively():
            last = _judge(store, run, routers[-1], last, params)
    champion = aliased(store.client, last.name, CHAMPION)
    kept_back = None if known or last.tags["decision"] == PROMOTED else last
    return Registration(describe.sentence(last, champion, known=known), kept_back)


@reported()
def promote(version: int) -> None:
    """Make a version the champion by hand. Raises InputError if it does not exist."""
    params = load_params()
    client = open_store(params.register_.experiment).client
    chosen = find_version(client, params.register_.model_name, version)
    with exclusively():
        _crown(client, chosen, "by hand")
    say(f"{chosen.name} version {chosen.version} is now the champion")


@reported()
def resolved(uri: str) -> str:
    """Return `models:/NAME/VERSION` for it or for `models:/NAME@ALIAS`.

    Raises InputError if no version has that alias.
    """
    name, at, alias = uri.removeprefix("models:/").partition("@")
    if not at:
        return uri
    version = aliased(open_store(load_params().register_.experiment).client, name, alias)
    if not version:
        raise InputError(f"{uri}: no version has this alias")
    return f"models:/{name}/{version.version}"


@contextmanager
def fetched_bundle(uri: str) -> Iterator[Path]:
    """Yield the folder of a registered router, `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

    The folder also holds the finetuned SLM. Raises InputError if it cannot be fetched.
    """
    open_store(load_params().register_.experiment)
    with TemporaryDirectory() as folder:
        try:
            kept = f"{uri}/artifacts/bundle"
            bundle = Path(mlflow.artifacts.download_artifacts(kept, dst_path=folder))
            slm = read_json(bundle / "router.json")["slm"]["kept"]
            (bundle / "slm").symlink_to(_fetch_slm(slm))
        except ERRORS as error:
            reason = without_password(str(error))
            raise InputError(f"{uri}: not fetched: {reason}") from None
        try:
            yield bundle
        except InputError as error:  # of a folder that will be gone
            raise type(error)(str(error).replace(str(bundle), uri)) from None


def _fetch_slm(uri: str) -> Path:
    """Return a stored SLM's folder. Download it once, to `mlruns/slm/`, if a server holds it."""
    model_id = uri.removeprefix("models:/")
    location = MlflowClient().get_logged_model(model_id).artifact_location
    if is_local_uri(location):
        return Path(local_file_uri_to_path(location))
    folder = home() / "slm" / model_id
    with exclusively():
        if not folder.exists():
            with replacing(folder) as aside:
                mlflow.artifacts.download_artifacts(uri, dst_path=str(aside))
    return folder.absolute()


def find_version(client: MlflowClient, name: str, version: int | str) -> ModelVersion:
    """Return a version. Raises InputError if it does not exist."""
    with _if_missing(f"{name}: no version {version} is registered"):
        return client.get_model_version(name, str(version))


def aliased(client: MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Return the version with an alias, or None. A deleted version has none.

    Raises InputError if nothing is registered.
    """
    with _if_missing(f"{name}: nothing is registered; run `citer run` first"):
        number = client.get_registered_model(name).aliases.get(alias)
    return None if number is None else find_version(client, name, number)


def run_of(version: ModelVersion) -> Run:
    """Return the run that trained a version's router. Raises InputError if there is none."""
    purged = f"{version.name}: version {version.version}: MLflow has no run and answers of it"
    remedy = "if it is the champion, promote another version with `citer promote`"
    with _if_missing(f"{purged}; {remedy}"):
        return mlflow.get_run(version.run_id or "none")  # one registered by hand may have none


@contextmanager
def _if_missing(message: str) -> Iterator[None]:
    """Raise InputError with this message if the requested MLflow object is missing."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise InputError(message) from None


def _register(store: Store, routers: Sequence[Run], params: Params) -> ModelVersion:
    """Register the routers of a retraining, unless they are, and return the last one's version."""
    client, name = store.client, params.register_.model_name
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name, description=DESCRIPTION.format(name=name))
    for router in routers:
        last = _same(store, name, router) or _new_version(store, router, params)
    return last


def _judge(store: Store, run: Run, router: Run, last: ModelVersion, params: Params) -> ModelVersion:
    """Let the gate judge a retraining's last version, and return it with its tags.

    `run` is the retraining's, `router` that of its last router. Can be called again after an
    interrupted call. If the champion changes meanwhile, the gate decides again. The last step tags
    the run with `version`.
    """
    client, name = store.client, last.name
    last = client.get_model_version(name, last.version)  # another run may have judged it meanwhile
    client.set_registered_model_alias(name, CHALLENGER, last.version)
    while not _is_judged(last, champion := aliased(client, name, CHAMPION)):
        before = run_of(champion) if champion else None
        decision = judge(run_of(last), before, params, f"{name}/{_number(champion)}")
        verdict = PROMOTED if decision.promote else KEPT_BACK
        count_use(store, router, "test")
        tags = {"reason": decision.reason, "decision": verdict, AGAINST: _number(champion)}
        for key, value in tags.items():
            client.set_model_version_tag(name, last.version, key, value)
        last = client.get_model_version(name, last.version)
    if last.tags["decision"] == PROMOTED:
        _crown(client, last, "by the gate")
    client.set_tag(run.info.run_id, "version", last.version)
    return last


def _is_judged(last: ModelVersion, champion: ModelVersion | None) -> bool:
    """Return whether the gate decided against this champion, or made the version the champion."""
    known = last.tags.get(AGAINST), _number(last)
    return "decision" in last.tags and _number(champion) in known


def _number(version: ModelVersion | None) -> str:
    return str(version.version) if version else "none"


def _same(store: Store, name: str, run: Run) -> ModelVersion | None:
    """Return the version that holds the same router as a run, or None. Its run may be deleted.

    MLflow makes two if it repeats a call whose reply was lost: the gate has judged one at most.
    """
    same = store.runs(f"tags.digest = '{run.data.tags['digest']}'", ViewType.ALL)
    ids = {each.info.run_id for each in same}
    versions = store.client.search_model_versions(f"name = '{name}'")
    own = (each for each in versions if each.run_id in ids)
    return max(own, key=lambda each: "decision" in each.tags, default=None)


def _new_version(store: Store, router: Run, params: Params) -> ModelVersion:
    client, name = store.client, params.register_.model_name
    count_use(store, router, "validation")
    router = client.get_run(router.info.run_id)  # with this use
    assert router.outputs
    model_id = router.outputs.model_outputs[0].model_id
    return client.create_model_version(
        name,
        source=f"models:/{model_id}",
        run_id=router.info.run_id,
        model_id=model_id,
        tags=describe.tags_of(router, params.serve),
        description=describe.description(router),
    )


def _crown(client: MlflowClient, version: ModelVersion, how: str) -> None:
    """Make a version the champion. Write the history of both versions, then move the alias."""
    before = aliased(client, version.name, CHAMPION)
    if _number(before) == _number(version):
        return
    if before:
        _add_event(client, before, f"replaced by version {version.version}")
    _add_event(client, version, f"made the champion {how}")
    client.set_registered_model_alias(version.name, CHAMPION, version.version)


def _add_event(client: MlflowClient, version: ModelVersion, event: str) -> None:
    earlier = version.tags.get("history", "")
    if not earlier.endswith(event):  # an interrupted call may have written it
        dated = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC {event}"
        history = f"{earlier}; {dated}" if earlier else dated
        client.set_model_version_tag(version.name, version.version, "history", history)
