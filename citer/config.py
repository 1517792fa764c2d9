"""`params.yaml`, read once at the door into frozen types: one section a stage."""

from os.path import normpath
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from citer.errors import InputError, read_text, shown
from citer.rule import Rule

Task = Literal["math", "mc"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0, le=10**9)]
Questions = Annotated[int, Field(gt=0, le=10**6)]
Slots = Annotated[int, Field(gt=0, le=2**14)]  # rows of one forward; each has a KV cache
Tokens = Annotated[int, Field(gt=0, le=2**24)]
Rate = Annotated[float, Field(gt=0, le=10)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Listed = Field(strict=False)
RuleText = Annotated[Rule, BeforeValidator(Rule.parse), PlainSerializer(str)]

OWN = PurePath("data/own")  # the user's own files


def _can_be_a_path(text: str) -> str:
    if not text.isprintable() or len(text) > 2000 or max(map(len, text.split("/"))) > 200:
        raise ValueError(f"{shown(text)}: expected a path, its names of 200 letters at most")
    return text


LocalPath = Annotated[str, AfterValidator(_can_be_a_path)]


class Section(BaseModel):
    """Strict, frozen, closed: an unknown key or another type is an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def only_known_keys(cls, content: Any) -> Any:
        # Before the fields: a misspelled key would be told as the missing one.
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in content if isinstance(content, dict) else ():
            if key not in known:
                raise ValueError(f"unknown key {key!r}; expected {', '.join(known)}")
        return content


class PairParams(Section):
    """The two models: local Hugging Face folders with one tokenizer.

    Without `cuda_graphs` a GPU launches every forward kernel by kernel.
    """

    slm: LocalPath
    llm: LocalPath
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    cuda_graphs: bool = True


class ToyParams(Section):
    """The embedded task families, in questions a family and split."""

    tasks: Annotated[tuple[Task, ...], Field(strict=False, min_length=1)]
    sft: Questions
    preference: Questions
    validation: Questions
    test: Questions


class ShareParams(Section):
    """How training files are dealt to the splits; shares sum to 1."""

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
    """A user's own JSON or JSON Lines file of one task."""

    path: LocalPath
    task: Task

    @field_validator("path")
    @classmethod
    def where_dvc_sees_it(cls, path: str) -> str:
        # Of a file elsewhere no change would ever be noticed: dvc.yaml knows this folder.
        if not PurePath(normpath(path)).is_relative_to(OWN):
            raise ValueError(f"{path!r}: expected a file under {OWN}")
        return path


class PrepareParams(Section):
    """Embedded families, the user's own files, or both.

    `train` files are dealt to the splits by `shares`; `validation` and `test` files are kept
    whole, and then take the place of that split's share.
    """

    seed: Seed
    toy: ToyParams | None
    train: Annotated[tuple[SourceFile, ...], Listed]
    validation: Annotated[tuple[SourceFile, ...], Listed]
    test: Annotated[tuple[SourceFile, ...], Listed]
    shares: ShareParams
    on_bad_row: Literal["fail", "skip"]

    @model_validator(mode="after")
    def has_a_source(self) -> Self:
        if self.toy is None and not self.train:
            raise ValueError("no source; expected `toy` or at least one `train` file")
        if self.train and not sum(self.dealt_shares().values()):
            raise ValueError("shares are 0 where `train` files could go; expected one above 0")
        return self

    def dealt_shares(self) -> dict[str, float]:
        """The shares of the splits that have no file of their own; they need not sum to 1."""
        own = {"validation": self.validation, "test": self.test}
        return {split: share for split, share in self.shares if not own.get(split)}


class FinetuneParams(Section):
    """Completion-only finetuning of the SLM, none for 0 steps; `processes` DeepSpeed ranks."""

    seed: Seed
    learning_rate: Rate
    steps: Annotated[int, Field(ge=0, le=10**9)]
    batch_size: Slots
    max_length: Tokens
    checkpoint_steps: Count
    deepspeed: Literal["auto", "on", "off"]
    processes: Annotated[int, Field(gt=0, le=1024)]


class ScoreParams(Section):
    """Teacher-forced scoring: padded tokens a forward, problems a shard."""

    batch_tokens: Tokens
    shard_problems: Count


class LabelParams(Section):
    """Preference labels: rollouts play router k-1 by `rule`; `tie`: both branches wrong."""

    rule: RuleText
    tie: Literal["slm", "llm", "drop"]
    slots: Slots
    max_new_tokens: Tokens


class TrainParams(Section):
    """The router's training; `holdout` is the share of problems that decides when to stop."""

    seed: Seed
    learning_rate: Rate
    batch_size: Annotated[int, Field(gt=1, le=2**24)]
    epochs: Count
    patience: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    holdout: Annotated[float, Field(gt=0, lt=1)]


class EvaluateParams(Section):
    """The sweep and the promise: P(routed wrong | LLM right) <= epsilon at confidence 1 - delta.

    `llm_floor`: the share of a task's validation questions that the LLM must have right; with
    options, 0.1 above chance at least. 0 lets every LLM pass.
    CITER is tried at τ of the target `llm_fractions`, audited routing at each of `risks` with each
    of `audits`, speculative decoding at each of `gammas`.
    """

    seed: Seed
    slots: Slots
    max_new_tokens: Tokens
    llm_fractions: Annotated[tuple[Share, ...], Field(strict=False, min_length=2)]
    risks: Annotated[tuple[Share, ...], Listed]
    audits: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Listed]
    gammas: Annotated[tuple[Tokens, ...], Listed]
    epsilon: Annotated[float, Field(gt=0, lt=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    llm_floor: Share
    batches: Annotated[tuple[Slots, ...], Field(strict=False, min_length=1)]

    @property
    def delta_a_line(self) -> float:
        """Lines of rules share delta: CITER's, and one of audited routing for each audit."""
        return self.delta / (1 + len(self.audits if self.risks else ()))


class RegisterParams(Section):
    """Where a router is registered; `margin` is the gate's non-inferiority margin in accuracy."""

    model_name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    experiment: str
    margin: Annotated[float, Field(ge=0, lt=1)]


class Iteration(Section):
    """One round of labels and router; `previous`: the router that makes the labels."""

    previous: str


class Params(Section):
    """All of `params.yaml`."""

    iterations: Annotated[dict[str, Iteration], Field(min_length=1)]
    pair: PairParams
    prepare: PrepareParams
    finetune: FinetuneParams
    score_llm: ScoreParams
    score_slm: ScoreParams
    label: LabelParams
    train: TrainParams
    evaluate: EvaluateParams
    register_: Annotated[RegisterParams, Field(alias="register")]

    @field_validator("iterations")
    @classmethod
    def follow_each_other(cls, iterations: dict[str, Iteration]) -> dict[str, Iteration]:
        for number, (name, iteration) in enumerate(iterations.items(), start=1):
            if (name, iteration.previous) != (str(number), str(number - 1)):
                found = f"{name!r} after {iteration.previous!r}"
                raise ValueError(f'{found}: expected "{number}": {{previous: "{number - 1}"}}')
        return iterations


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check `params.yaml`.

    Raises InputError with one line that names the key, the value and what was expected.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; run in the project's folder")
    text = read_text(path)
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1
        raise InputError(f"{path}:{line}: not YAML: {error.problem}") from None
    except Exception as error:  # a scalar's constructor raises whatever Python's own does
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        raise InputError(f"{path}: empty: expected a section of keys")
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {complaint(error)}") from None


def complaint(invalid: ValidationError) -> str:
    """The first thing that is wrong: which key, its value, what was expected."""
    error = invalid.errors()[0]
    key = ".".join(str(part) for part in error["loc"]) or "top level"
    match error["type"]:
        case "missing":
            return f"{key}: missing; expected every key of this section"
        case "value_error":  # says itself what it found
            return f"{key}: {error['msg'].removeprefix('Value error, ')}"
        case "too_short":
            expected = f"expected at least {error['ctx']['min_length']}"
        case "model_type":
            expected = "expected a section of keys"
        case "string_pattern_mismatch":
            expected = f"expected text that matches {error['ctx']['pattern']}"
        case "tuple_type":
            expected = "expected a list"
        case _:
            expected = error["msg"].replace("Input should be", "expected")
    return f"{key}: {shown(error['input'])}: {expected}"
