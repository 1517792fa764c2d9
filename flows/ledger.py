"""Count how often the same questions decided: validation chooses a rule, test decides at the gate.

Each use spends confidence. A version stores the digests of its questions, and the number of its
own use of them. The count is read from the versions that exist, so it cannot differ from them. If a
version is deleted, later ones still have their numbers.
"""

from collections.abc import Iterable, Iterator, Mapping

from mlflow.entities.model_registry import ModelVersion

from citer.io import digest

Tags = Mapping[str, str]
SHOWN = 7  # digits of a digest
DECISIONS = {"validation": "promises", "test": "decisions of the gate"}


def question_sets(questions: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the tags with the digests of questions, given their ids by split."""
    named = ((split, sorted(ids)) for split, ids in questions.items())
    return {f"{split}_set": digest(*ids) for split, ids in named if ids}


def next_use(versions: Iterable[ModelVersion], split: str, tags: Tags) -> dict[str, str]:
    """Return the tag with the number of a new use of the questions whose digest is in `tags`."""
    known = tags.get(f"{split}_set")
    return {f"{split}_use": str(uses(versions, split, known) + 1)} if known else {}


def uses(versions: Iterable[ModelVersion], split: str, questions: str) -> int:
    """Return how often the questions with this digest have decided."""
    return max(
        (
            int(version.tags.get(f"{split}_use", 0))
            for version in versions
            if version.tags.get(f"{split}_set") == questions
        ),
        default=0,
    )


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


def report(versions: Iterable[ModelVersion], shown: Iterable[Tags]) -> Iterator[str]:
    """Yield a sentence for each set of questions of the versions to show.

    It supposes that every use spent the largest delta of the versions with this set. The last
    sentence names the versions of an earlier citer, which are not counted.
    """
    known = list(versions)
    sets = [(s, tags[f"{s}_set"]) for tags in shown for s in DECISIONS if f"{s}_set" in tags]
    for split, questions in dict.fromkeys(sets):
        if used := uses(known, split, questions):
            own = (v.tags for v in known if v.tags.get(f"{split}_set") == questions)
            yield spent(split, questions, used, max(float(tags["delta"]) for tags in own))
    uncounted = [v.version for v in known if not any(f"{s}_set" in v.tags for s in DECISIONS)]
    if sets and uncounted:
        numbers = ", ".join(sorted(map(str, uncounted), key=int))
        yield f"Not counted, because an earlier citer registered them: versions {numbers}."
