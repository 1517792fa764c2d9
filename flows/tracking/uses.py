"""Count how often the same questions decided: validation chooses a rule, test decides at the gate.

Each use spends confidence. A router's run keeps the digests of its questions (parameters), and the
number of its own use of them (metrics). The count is read from the runs that exist, deleted ones
too, so it cannot differ from them. An earlier citer wrote both on the versions, as tags.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mlflow.entities import Run, ViewType
from mlflow.entities.model_registry import ModelVersion

from citer.storage.tables import digest
from flows.tracking.answers import questions
from flows.tracking.store import Store

Tags = Mapping[str, str]
SHOWN = 7  # digits of a digest
DECISIONS = {"validation": "promises", "test": "decisions of the gate"}


def question_set(ids: Iterable[str]) -> str:
    """Return the digest of questions, given their ids."""
    return digest(*sorted(ids))


def record(run: Run) -> dict[str, str]:
    """Return which questions a router used, the number of its use of them, and the delta spent."""
    params, metrics = run.data.params, run.data.metrics
    sets = {key: params[key] for s in DECISIONS if (key := f"{s}_set") in params}
    counts = {key: f"{metrics[key]:.0f}" for s in DECISIONS if (key := f"{s}_use") in metrics}
    return sets | counts | ({"delta": params["evaluate.delta"]} if sets else {})


def records(store: Store, versions: Iterable[ModelVersion]) -> dict[str, Tags]:
    """Return the records of all routers that the experiment had, and of the versions."""
    runs = store.runs("tags.kind = 'iteration'", ViewType.ALL)
    known: dict[str, Tags] = {run.info.run_id: record(run) for run in runs}
    for version in versions:
        if version.run_id:
            known[version.run_id] = version.tags | {**known.get(version.run_id, {})}
    return known


def count_use(store: Store, versions: Iterable[ModelVersion], router: Run, split: str) -> None:
    """Log with a router's run that its questions of a split decided; once, if called again."""
    run_id = router.info.run_id
    if ids := questions(run_id, split):
        asked = question_set(ids)
        others = records(store, versions)
        others.pop(run_id, None)
        number = uses(others.values(), split, asked) + 1
        store.log(router, {f"{split}_set": asked}, {f"{split}_use": number})


def uses(known: Iterable[Tags], split: str, asked: str) -> int:
    """Return how often the questions with this digest have decided."""
    counts = (int(own.get(f"{split}_use", 0)) for own in known if own.get(f"{split}_set") == asked)
    return max(counts, default=0)


def spent(split: str, questions: str, used: int, delta: float) -> str:
    """Say how often questions decided, and at what confidence all these decisions hold together.

    This is the union bound: the chance that one of k statements at confidence 1 - delta each is
    wrong is at most k delta. It holds if nothing learnt from these questions' results changed a
    later version.
    """
    times = "once" if used == 1 else f"{used} times"
    what, left = DECISIONS[split], 1 - used * delta
    together = f"at confidence {left:.3g}" if left > 0 else "at no confidence any more"
    return (
        f"{split.capitalize()} questions {questions[:SHOWN]}: used {times}; "
        f"all {what} from them hold together {together}."
    )


def report(
    versions: Sequence[ModelVersion], known: Mapping[str, Tags], shown: Iterable[Tags]
) -> Iterator[str]:
    """Yield a sentence for each set of questions of the records to show.

    It supposes that every use spent the largest delta of the routers with this set. The last
    sentence names the versions of an earlier citer, which are not counted. `known` has the records
    by the id of a router's run.
    """
    sets = [(s, own[f"{s}_set"]) for own in shown for s in DECISIONS if f"{s}_set" in own]
    for split, asked in dict.fromkeys(sets):
        if used := uses(known.values(), split, asked):
            spending = (own for own in known.values() if own.get(f"{split}_set") == asked)
            yield spent(split, asked, used, max(float(own["delta"]) for own in spending))
    counted = {run_id for run_id, own in known.items() for s in DECISIONS if f"{s}_set" in own}
    uncounted = [version.version for version in versions if version.run_id not in counted]
    if sets and uncounted:
        listed = ", ".join(sorted(map(str, uncounted), key=int))
        yield f"Not counted, because an earlier citer registered them: versions {listed}."
