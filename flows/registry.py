"""The registered model: its versions, and which of them serves."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
from rich.console import Console

from citer.config import Params, load_params
from citer.errors import InputError
from citer.evaluation.gate import Decision, Gate
from citer.io import read_json
from flows import facts, outcomes
from flows.dvc_commands import dvc, has_remote
from flows.reach import reported
from flows.slm import fetch_slm
from flows.store import exclusively, open_store
from flows.tracking import children, track

CHAMPION, CHALLENGER = "champion", "challenger"
PROMOTED, KEPT_BACK = "promoted", "kept back"
DESCRIPTION = (
    "Routers between a small and a large language model, each with its finetuned small one. "
    'To ask the one that serves: `mlflow.pyfunc.load_model("models:/{name}@champion")'
    '.predict(["a question"])`, in the project\'s folder.'
)


@reported()
def register_run(stages: Mapping[str, float | None]) -> str:
    """Log the retraining whose files lie here, register its routers, decide on the last one.

    What is registered already stays as it is. `stages` are those of dvc.yaml, each with the
    seconds that it took, where it had to run. Returns a sentence on the last router, and on who
    is the champion. Raises InputError where the champion is without a rule or its run, and where
    the experiment is deleted.
    """
    params = load_params()
    store = open_store(params.register_.experiment)
    with exclusively():
        run = track(store, params, stages)
        routers = children(store, run.info.run_id)
        known = _settled(store.client, params.register_.model_name, run, routers[-1])
        last = known or _register(store.client, run, routers, params)
    if has_remote():
        dvc("push")
    return _sentence(last, aliased(store.client, last.name, CHAMPION), known=bool(known))


@reported()
def promote(version: int) -> None:
    """Make a version the champion by hand.

    Raises InputError where there is no such version, and where it has no rule.
    """
    params = load_params()
    client = open_store(params.register_.experiment).client
    chosen = _ruled(find_version(client, params.register_.model_name, version))
    with exclusively():
        _crown(client, chosen, "by hand")
    Console().print(f"{chosen.name} version {chosen.version} is the champion now", highlight=False)


@contextmanager
def fetched_bundle(uri: str) -> Iterator[Path]:
    """The folder of a registered router, `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

    Its finetuned SLM lies in it. Raises InputError where there is no such version.
    """
    if not re.fullmatch(r"models:/[^/@]+[/@][^/@]+", uri):
        raise InputError(f"{uri}: expected models:/NAME@ALIAS or models:/NAME/VERSION")
    open_store(load_params().register_.experiment)
    with TemporaryDirectory() as folder:
        yield _download_bundle(uri, folder)


def _download_bundle(uri: str, folder: str) -> Path:
    try:
        bundle = Path(
            mlflow.artifacts.download_artifacts(f"{uri}/artifacts/bundle", dst_path=folder)
        )
        if kept := read_json(bundle / "router.json")["slm"].get(
            "kept"
        ):  # older ones carry their own
            (bundle / "slm").symlink_to(fetch_slm(kept))
    except MlflowException as error:
        raise InputError(f"{uri}: no such registered router: {error.message}") from None
    return bundle


def find_version(client: MlflowClient, name: str, version: int | str) -> ModelVersion:
    """Raises InputError where there is no such version."""
    with _expected(f"{name}: no version {version} is registered"):
        return client.get_model_version(name, str(version))


def aliased(client: MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """Raises InputError where nothing is registered, or the version is gone or has no rule."""
    with _expected(f"{name}: nothing is registered; run `citer run` first"):
        number = client.get_registered_model(name).aliases.get(alias)
    if number is None:
        return None
    mend = "`citer promote` another" if alias == CHAMPION else "delete the alias on MLflow's page"
    with _expected(f"{name}: version {number} is gone, which is the {alias}; {mend}"):
        return _ruled(client.get_model_version(name, number))


def _ruled(version: ModelVersion) -> ModelVersion:
    if "rule" not in version.tags:
        found = f"{version.name}: version {version.version} has no tag `rule`"
        raise InputError(f"{found}, it is of an older citer; `citer promote` another one")
    return version


def run_of(version: ModelVersion) -> Run:
    """The run that a version's router comes from. Raises InputError where it is gone for good."""
    assert version.run_id
    gone = f"{version.name}: version {version.version}: its run, with its answers, is gone"
    with _expected(f"{gone} from MLflow; where it serves, `citer promote` another"):
        return mlflow.get_run(version.run_id)


@contextmanager
def _expected(otherwise: str) -> Iterator[None]:
    """Raises InputError, which says `otherwise`, where what MLflow is asked for does not exist."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
        raise InputError(otherwise) from None


def _sentence(last: ModelVersion, champion: ModelVersion | None, *, known: bool) -> str:
    decided = facts.verdict(last.tags)
    now = f"the champion is version {champion.version}" if champion else "there is no champion"
    if known:
        return (
            f"nothing new: {last.name} version {last.version}, registered earlier, is the same "
            f"router; it was then {decided}; now {now}"
        )
    return f"{last.name} version {last.version} {decided}; {now}"


def _settled(client: MlflowClient, name: str, run: Run, last: Run) -> ModelVersion | None:
    """The version of a retraining's last router, if nothing is left to decide or to alias.

    The run's tag says so; of a run that somebody has deleted, that its version is there still.
    """
    found = _same(client, name, last)
    if found is None or "decision" not in found.tags:
        return None
    return found if "version" in run.data.tags or found.run_id != last.info.run_id else None


def _register(
    client: MlflowClient, run: Run, routers: Sequence[Run], params: Params
) -> ModelVersion:
    """Register the routers of a retraining; returns the last one's version.

    Every step takes up what an interrupted call has left; the tag on the run comes last.
    """
    name = params.register_.model_name
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name, description=DESCRIPTION.format(name=name))
    for router in routers:
        last = _same(client, name, router) or _new_version(client, name, router)
    client.set_registered_model_alias(name, CHALLENGER, last.version)
    if "decision" not in last.tags:
        decided = _decide(client, last, params)
        verdict = PROMOTED if decided.promote else KEPT_BACK
        _tag(client, last, {"reason": decided.reason, "decision": verdict})
    last = client.get_model_version(name, last.version)
    if last.tags["decision"] == PROMOTED:
        _crown(client, last, "by the gate")
    client.set_tag(run.info.run_id, "version", last.version)
    return last


def _same(client: MlflowClient, name: str, run: Run) -> ModelVersion | None:
    """The version, if there is one, that holds the same router as a run."""
    same = f"name = '{name}' AND tags.digest = '{run.data.tags['digest']}'"
    return next(iter(client.search_model_versions(same)), None)


def _new_version(client: MlflowClient, name: str, router: Run) -> ModelVersion:
    tags = facts.tags_of(router)
    assert router.outputs
    model_id = router.outputs.model_outputs[0].model_id
    return client.create_model_version(
        name,
        source=f"models:/{model_id}",
        run_id=router.info.run_id,
        model_id=model_id,
        tags=tags,
        description=facts.description(tags),
    )


def _decide(client: MlflowClient, challenger: ModelVersion, params: Params) -> Decision:
    run_id = run_of(challenger).info.run_id
    champion = aliased(client, challenger.name, CHAMPION)
    settings = params.evaluate
    gate = Gate(params.register_.margin, settings.delta, settings.epsilon, settings.llm_floor)
    return gate.decide(
        outcomes.routed(run_id),
        outcomes.routed(run_of(champion).info.run_id) if champion else None,
        outcomes.llm_alone(run_id),
        certified=outcomes.threshold(run_id)["certified"],
    )


def _crown(client: MlflowClient, version: ModelVersion, how: str) -> None:
    """Make a version the champion. It and the one before note it first, the alias comes last."""
    before = client.get_registered_model(version.name).aliases.get(CHAMPION)
    if before is not None and str(before) == str(version.version):
        return
    if before is not None:
        with suppress(InputError):  # it may be gone
            replaced = find_version(client, version.name, before)
            _add_event(client, replaced, f"replaced by version {version.version}")
    _add_event(client, version, f"made the champion {how}")
    client.set_registered_model_alias(version.name, CHAMPION, version.version)


def _add_event(client: MlflowClient, version: ModelVersion, event: str) -> None:
    earlier = version.tags.get("history", "")
    if not earlier.endswith(event):  # a call that was cut short has noted it
        dated = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC {event}"
        _tag(client, version, {"history": f"{earlier}; {dated}" if earlier else dated})


def _tag(client: MlflowClient, version: ModelVersion, tags: dict[str, str]) -> None:
    """Set tags, and the description that repeats them."""
    for key, value in tags.items():
        client.set_model_version_tag(version.name, version.version, key, value)
    said = facts.description(version.tags | tags)
    client.update_model_version(version.name, version.version, said)
