"""The sources of problems: the section `prepare` of params.yaml."""

from os.path import normpath
from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from citer.data.tasks import EmbeddedTask, known_task
from citer.data.tasks.own import OWN
from citer.sections import Listed, LocalPath, Questions, Section, Share, SomeListed

TaskName = Annotated[str, AfterValidator(known_task)]


def _where_dvc_sees_it(path: str) -> str:
    # DVC tracks this folder only: it would not see that a file elsewhere has changed.
    if not PurePath(normpath(path)).is_relative_to(OWN):
        raise ValueError(f"{path!r}: expected a file under {OWN}")
    return path


OwnPath = Annotated[LocalPath, AfterValidator(_where_dvc_sees_it)]


class ToyParams(Section):
    """The embedded tasks: numbers of questions per task and split.

    `preference` may be 0 if other sources have questions for it, such as `traffic`.
    """

    tasks: Annotated[tuple[EmbeddedTask, ...], SomeListed]
    sft: Questions
    preference: Annotated[int, Field(ge=0, le=10**6)]
    validation: Questions
    test: Questions


class ShareParams(Section):
    """The share of the `train` rows and of traffic that goes to each split. They sum to 1."""

    sft: Share
    preference: Share
    validation: Share
    test: Share

    @model_validator(mode="after")
    def sum_to_one(self) -> Self:
        total = self.sft + self.preference + self.validation + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"shares must sum to 1, they sum to {total:g}")
        return self


class SourceFile(Section):
    """A user's file with rows of one task. The format of each row is recognised."""

    path: OwnPath
    task: TaskName


class TrafficFolder(Section):
    """A folder of served answers (see `citer.serving.log`): at most `most` of their questions."""

    path: OwnPath
    most: Questions


class PrepareParams(Section):
    """Sources of problems: embedded tasks, the user's files, or both.

    A split with a file of its own gets all rows of that file, and none of `train`. The questions of
    `traffic` go to all splits, but to validation and test only where they can be judged.
    """

    toy: ToyParams | None
    train: Annotated[tuple[SourceFile, ...], Listed]
    validation: Annotated[tuple[SourceFile, ...], Listed]
    test: Annotated[tuple[SourceFile, ...], Listed]
    shares: ShareParams
    on_bad_row: Literal["fail", "skip"]
    traffic: Annotated[tuple[TrafficFolder, ...], Listed] = ()

    @model_validator(mode="after")
    def has_a_source(self) -> Self:
        if self.toy is None and not self.train:
            raise ValueError("no source; expected `toy` or at least one `train` file")
        if self.train and not sum(self.dealt_shares().values()):
            raise ValueError("no split has a share of the `train` rows; expected one above 0")
        return self

    @property
    def tasks(self) -> tuple[str, ...]:
        files = (*self.train, *self.validation, *self.test)
        own = {file.task for file in files}
        return tuple(sorted(own.union(self.toy.tasks if self.toy else ())))

    def dealt_shares(self) -> dict[str, float]:
        """Return the shares of the splits without a file of their own; the sum may be below 1."""
        own = {"validation": self.validation, "test": self.test}
        return {split: share for split, share in self.shares if not own.get(split)}
