"""The sections of `params.yaml`, as frozen types. `params.yaml` explains the keys."""

from os.path import normpath
from pathlib import Path, PurePath
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from citer.checked import (
    Count,
    Listed,
    LocalPath,
    Questions,
    Rate,
    Section,
    Seed,
    Share,
    Slots,
    SomeListed,
    Tokens,
    read_yaml,
)
from citer.data.prompt_settings import ChatParams, PromptKind, PromptSettings, StopStrings
from citer.data.tasks import find_task, known_task
from citer.data.tasks.own import OWN
from citer.errors import InputError
from citer.rule import Rule

TaskName = Annotated[str, AfterValidator(known_task)]
RuleText = Annotated[Rule, BeforeValidator(Rule.parse), PlainSerializer(str)]


class PairParams(Section):
    """The two models, local Hugging Face folders with one tokenizer, and the form of prompts.

    Without `cuda_graphs`, a GPU launches the kernels of each forward one by one. With
    `llm_device_map: auto`, accelerate distributes the LLM's layers over all GPUs, and the SLM and
    the router run on the last one.
    """

    slm: LocalPath
    llm: LocalPath
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    cuda_graphs: bool = True
    llm_device_map: Literal["auto"] | None = None
    prompt: PromptKind = "plain"
    chat: ChatParams = ChatParams()
    stop: StopStrings = ()

    @model_validator(mode="after")
    def chat_is_used(self) -> Self:
        if self.prompt == "plain" and self.chat != ChatParams():
            raise ValueError("chat: not read by plain prompts; expected prompt: chat")
        return self


class ToyParams(Section):
    """The embedded tasks: numbers of questions per task and split."""

    tasks: Annotated[tuple[TaskName, ...], SomeListed]
    sft: Questions
    preference: Questions
    validation: Questions
    test: Questions


class ShareParams(Section):
    """The share of the `train` rows that goes to each split. The shares sum to 1."""

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
    """A user's file with rows of one task: JSON, JSON Lines, Parquet or CSV.

    `format` names the format of its rows, such as `gsm8k`. Without it, the format is recognised.
    """

    path: LocalPath
    task: TaskName
    format: str | None = None

    @field_validator("path")
    @classmethod
    def where_dvc_sees_it(cls, path: str) -> str:
        # DVC tracks this folder only: it would not see that a file elsewhere has changed.
        if not PurePath(normpath(path)).is_relative_to(OWN):
            raise ValueError(f"{path!r}: expected a file under {OWN}")
        return path

    @field_validator("format")
    @classmethod
    def known_to_the_task(cls, format: str | None, info: ValidationInfo) -> str | None:
        if format is not None and "task" in info.data:
            find_task(info.data["task"]).format_named(format)
        return format


class PrepareParams(Section):
    """Sources of problems: embedded tasks, the user's files, or both.

    The rows of `train` files are distributed over the splits by `shares`. A split with a file of
    its own (`validation`, `test`) gets all rows of that file, and none of `train`.
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
            raise ValueError("no split has a share of the `train` rows; expected one above 0")
        return self

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of all sources."""
        files = (*self.train, *self.validation, *self.test)
        own = {file.task for file in files}
        return tuple(sorted(own.union(self.toy.tasks if self.toy else ())))

    def dealt_shares(self) -> dict[str, float]:
        """Return the shares of the splits without a file of their own; the sum may be below 1."""
        own = {"validation": self.validation, "test": self.test}
        return {split: share for split, share in self.shares if not own.get(split)}


class LoraParams(Section):
    """A low-rank adapter, W + alpha / rank · B A (arXiv 2106.09685), merged into the written SLM.

    `targets`: names of linear layers, such as `q_proj`. By default all but the output head.
    """

    rank: Annotated[int, Field(gt=0, le=2**14)] = 16
    alpha: Annotated[int, Field(gt=0, le=2**16)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: Annotated[tuple[str, ...], SomeListed] | None = None


class FinetuneParams(Section):
    """Finetuning of the SLM on completions only, of all weights or of an adapter (`lora`).

    `gradient_checkpointing` computes activations and logits again instead of keeping them; "auto":
    only on a GPU. `zero` names DeepSpeed's partitioning: 2 divides gradients and optimizer state
    among the ranks, 3 also the weights, and 3-offload keeps these in the CPU's memory.
    """

    seed: Seed
    learning_rate: Rate
    steps: Annotated[int, Field(ge=0, le=10**9)]
    batch_size: Slots
    max_length: Tokens
    checkpoint_steps: Count
    deepspeed: Literal["auto", "on", "off"]
    processes: Annotated[int, Field(gt=0, le=1024)]
    lora: LoraParams | None = None
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    zero: Literal[2, 3, "3-offload"] = 2


class ScoreParams(Section):
    """Teacher-forced scoring."""

    batch_tokens: Tokens
    shard_problems: Count


class LabelParams(Section):
    """Preference labels. Rollouts of iteration k use router k - 1 with `rule`."""

    rule: RuleText
    tie: Literal["slm", "llm", "drop"]
    slots: Slots
    max_new_tokens: Tokens


class TrainParams(Section):
    """Training of a router's head."""

    seed: Seed
    learning_rate: Rate
    batch_size: Annotated[int, Field(gt=1, le=2**24)]
    epochs: Count
    patience: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    holdout: Annotated[float, Field(gt=0, lt=1)]


class EvaluateParams(Section):
    """The rules to try, and the promise P(routed wrong | LLM right) <= epsilon.

    The promise holds at confidence 1 - delta. CITER uses `llm_fractions`. Audited routing uses each
    pair of `risks` and `audits`. Speculative decoding uses `gammas`.
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
    batches: Annotated[tuple[Slots, ...], SomeListed]

    @property
    def delta_per_line(self) -> float:
        """Delta, divided by the number of lines: one line for CITER and one for each audit."""
        return self.delta / (1 + len(self.audits if self.risks else ()))


class RegisterParams(Section):
    """Where a router is registered, and the gate's non-inferiority margin."""

    model_name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    experiment: str
    margin: Annotated[float, Field(ge=0, lt=1)]


class Iteration(Section):
    """One round of labels and router. The labels are made with router `previous`."""

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

    @property
    def prompts(self) -> PromptSettings:
        """The settings of the prompt format that all stages use."""
        pair, tasks = self.pair, self.prepare.tasks
        return PromptSettings(kind=pair.prompt, chat=pair.chat, stop=pair.stop, tasks=tasks)

    @field_validator("iterations")
    @classmethod
    def follow_each_other(cls, iterations: dict[str, Iteration]) -> dict[str, Iteration]:
        for number, (name, iteration) in enumerate(iterations.items(), start=1):
            if (name, iteration.previous) != (str(number), str(number - 1)):
                found = f"{name!r} after {iteration.previous!r}"
                raise ValueError(f'{found}: expected "{number}": {{previous: "{number - 1}"}}')
        return iterations


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check `params.yaml`. Raises InputError with one line about the first error."""
    if not path.exists():
        raise InputError(f"{path}: no such file; run in the project's folder")
    return read_yaml(path, Params)
