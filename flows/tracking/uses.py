"""Count how often the same questions decided: validation chooses a rule, test decides at the gate.

Each use spends confidence. A router's run keeps a sample of its questions (parameters), and the
number of its own use of them (metrics). The count is read from the runs that exist, deleted ones
too, so it cannot differ from them.
"""

from collections.abc import Iterable, Iterator, Sequence

from mlflow.entities import Run, ViewType

from citer.storage.tables import digest
from flows.tracking.answers import questions
from flows.tracking.store import Store

SHOWN = 7  # digits of a digest
KEPT = 8  # digests of a sample, the smallest: sets that have much in common share some of them
DECISIONS = {"validation": "promises", "test": "decisions of the gate"}


def routers(store: Store) -> list[Run]:
    """Return the runs of all routers that the experiment had."""
    return store.runs("tags.kind = 'iteration'", ViewType.ALL)


def count_use(store: Store, router: Run, split: str) -> None:
    """Log with a router's run that its questions of a split decided; once, if called again."""
    if ids := questions(router.info.run_id, split):
        asked = " ".join(sorted(map(digest, ids))[:KEPT])
        others = [run for run in routers(store) if run.info.run_id != router.info.run_id]
        number = _uses(_asking(others, split, asked), split) + 1
        store.log(router, {f"{split}_set": asked}, {f"{split}_use": number})


def _asking(known: Iterable[Run], split: str, asked: str) -> list[Run]:
    """Select the routers that used questions of this sample."""
    samples = ((run, run.data.params.get(f"{split}_set", "")) for run in known)
    return [run for run, sample in samples if {*sample.split()} & {*asked.split()}]


def _uses(asking: Sequence[Run], split: str) -> int:
    """Return how often their questions have decided. Two machines may have given one number."""
    numbers = (run.data.metrics.get(f"{split}_use", 0) for run in asking)
    return max(int(max(numbers, default=0)), len(asking))


def spent(split: str, questions: str, used: int, delta: float) -> str:
    """Say how often questions decided, and at what confidence all these decisions hold together.

    This is the union bound: the chance that one of k statements at confidence 1 - delta each is
    wrong is at most k delta. It holds if nothing learnt from these questions' results changed a
    later version.
    """
    times = "once" if used == 1 else f"{used} times"
    what, left = DECISIONS[split], 1 - used * delta
    together = f"at confidence {left:.3g}" if left > 0 else "at no confidence any more"
    asked = f"{split.capitalize()} questions {questions[:SHOWN]}"
    return f"{asked}: used {times}; all {what} from them hold together {together}."


def report(known: Sequence[Run], shown: Iterable[Run]) -> Iterator[str]:
    """Yield a sentence for each set of questions that the routers `shown` used.

    It supposes that every use spent the largest delta of the routers `known` with this set.
    """
    sets = [(s, run.data.params.get(f"{s}_set", "")) for run in shown for s in DECISIONS]
    for split, asked in dict.fromkeys(sets):
        asking = _asking(known, split, asked)
        if used := _uses(asking, split):
            delta = max(float(run.data.params["evaluate.delta"]) for run in asking)
            yield spent(split, asked, used, delta)
