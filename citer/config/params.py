"""The sections of `params.yaml`, as frozen types. `params.yaml` explains the keys."""

import math
import os
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from citer.config.pair import DEVICE, Device, PairParams
from citer.config.sources import PrepareParams
from citer.data.prompts import PromptSettings
from citer.errors import InputError
from citer.executors.base import WorkerParams
from citer.rule import Rule
from citer.sections import (
    Against,
    BoundName,
    CandidateName,
    Count,
    Listed,
    Questions,
    Rate,
    Section,
    Seed,
    Share,
    Slots,
    SomeListed,
    Source,
    Tokens,
)
from citer.storage.yaml_file import read_yaml

RuleText = Annotated[Rule, BeforeValidator(Rule.parse), PlainSerializer(str)]
Beta = Annotated[float, Field(gt=0, le=1)]
FIRST_SCORERS = ("", "stand", "agree", "entropy", "probability")  # of router 0; "": by default
SplitName = Annotated[str, Field(pattern=r"^(sft|preference|validation|test)$")]


class SamplingParams(Section):
    """Sampling from a model's distribution: temperature, then `top_k`, then `top_p`."""

    temperature: Annotated[float, Field(gt=0, le=10)]
    top_k: Annotated[int, Field(gt=0, le=2**24)] | None = None
    top_p: Annotated[float, Field(gt=0, lt=1)] | None = None


class DecodeParams(Section):
    """How many questions are decoded at once, and the longest answer."""

    slots: Slots
    max_new_tokens: Tokens


class ReferenceParams(Section):
    """The references from which SLM and router learn: `both` gives a question two rows.

    `most` has the most questions of a split.
    """

    source: Source = "auto"
    most: dict[SplitName, Questions | None] = Field(default_factory=dict)

    def kept(self, split: str, questions: int) -> int:
        return min(questions, self.most.get(split) or questions)


class LoraParams(Section):
    """A low-rank adapter, W + alpha / rank · B A (arXiv 2106.09685), merged into the written SLM.

    All linear layers have one, but for the output head.
    """

    rank: Annotated[int, Field(gt=0, le=2**14)] = 16
    alpha: Annotated[int, Field(gt=0, le=2**16)] = 32


class FinetuneParams(Section):
    """Finetuning of the SLM on completions only, of all weights or of an adapter (`lora`).

    `zero` names DeepSpeed's partitioning: 2 divides gradients and optimizer state among the ranks,
    3 also the weights, and 3-offload keeps these in the CPU's memory.
    """

    learning_rate: Rate
    epochs: Annotated[float, Field(ge=0, le=10**6)]
    batch_size: Slots
    max_length: Tokens
    deepspeed: Literal["auto", "on", "off"]
    processes: Annotated[int, Field(gt=0, le=1024)]
    lora: LoraParams | None = None
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    zero: Literal[2, 3, "3-offload"] = 2

    @field_validator("processes")
    @classmethod
    def fits(cls, processes: int, info: ValidationInfo) -> int:
        if processes > 1 and info.data.get("deepspeed") == "off":
            raise ValueError(f"{processes}: needs DeepSpeed, expected 1 or finetune.deepspeed: on")
        if info.data.get("batch_size", 0) % processes:
            batch = info.data["batch_size"]
            raise ValueError(f"{processes}: not a divisor of finetune.batch_size {batch}")
        return processes

    def steps(self, rows: int) -> int:
        """Return the number of batches: 0 without epochs, else at least one.

        The last batch of an epoch may be smaller than the others.
        """
        batches = math.ceil(rows / self.batch_size)
        return max(1, round(self.epochs * batches)) if self.epochs else 0


class ScoreParams(Section):
    batch_tokens: Tokens


class LabelParams(Section):
    """Preference labels: what decides contested tokens, and the rule of rollouts."""

    method: Literal["auto", "suffix"] = "auto"
    rule: RuleText

    @field_validator("rule")
    @classmethod
    def asks_what_router_0_has(cls, rule: Rule) -> Rule:
        if rule.by not in FIRST_SCORERS:
            expected = ", ".join(map(repr, FIRST_SCORERS[1:]))
            raise ValueError(f"'{rule}': by {rule.by!r}, expected one of router 0: {expected}")
        return rule


class TrainParams(Section):
    learning_rate: Rate
    batch_size: Annotated[int, Field(gt=1, le=2**24)]
    epochs: Count
    patience: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    holdout: Annotated[float, Field(gt=0, lt=1)]


class EvaluateParams(Section):
    """The rules to try, and the promise that a rule must keep."""

    llm_fractions: Annotated[tuple[Share, ...], Field(strict=False, min_length=2)]
    risks: Annotated[tuple[Share, ...], Listed]
    audits: Annotated[tuple[Beta, ...], Listed]
    gammas: Annotated[tuple[Tokens, ...], Listed]
    candidates: Annotated[tuple[CandidateName, ...], SomeListed] = get_args(CandidateName)
    bounds: Annotated[tuple[BoundName, ...], Listed] = get_args(BoundName)
    epsilon: Annotated[float, Field(gt=0, lt=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    llm_floor: Share
    batches: Annotated[tuple[Slots, ...], SomeListed]
    against: Against = "auto"
    sampling: SamplingParams | None = None

    @property
    def fractions(self) -> list[float]:
        """The target LLM fractions without those of the models alone."""
        return [fraction for fraction in self.llm_fractions if 0 < fraction < 1]


class ShadowParams(Section):
    """How a promise is watched in service."""

    shadow: Share = 0.0
    shadow_deadline: Annotated[float, Field(gt=0)] = 24.0
    false_alarms: Annotated[float, Field(ge=20)] = 20_000.0


class ServeParams(ShadowParams):
    """Where the deployed rule will serve: it decides policy and cost, and with them the choice."""

    engine: Literal["citer", "vllm"] = "citer"
    batch: Slots = 1
    cap: Annotated[int, Field(gt=0, le=1024)] = 16


class RegisterParams(Section):
    """Where a router is registered, and the gate's margins."""

    model_name: Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,199}$")]
    experiment: Annotated[str, Field(min_length=1)]
    margin: Annotated[float, Field(ge=0, lt=1)]
    byte_margin: Annotated[float, Field(ge=0, lt=1)] = 0.02


class Iteration(Section):
    previous: str  # the router with which the labels are made


class Params(Section):
    iterations: Annotated[dict[str, Iteration], Field(min_length=1)]
    seed: Seed
    pair: PairParams
    decode: DecodeParams
    prepare: PrepareParams
    references: ReferenceParams = ReferenceParams()
    finetune: FinetuneParams
    score: ScoreParams
    label: LabelParams
    train: TrainParams
    evaluate: EvaluateParams
    serve: ServeParams = ServeParams()
    answer: DecodeParams  # of `citer generate`, `citer serve` and the registered model
    register_: Annotated[RegisterParams, Field(alias="register")]
    workers: WorkerParams = WorkerParams()

    @property
    def prompts(self) -> PromptSettings:
        """The settings of the prompt format that all stages use."""
        pair, tasks = self.pair, self.prepare.tasks
        return PromptSettings(kind=pair.prompt, chat=pair.chat, stop=pair.stop, tasks=tasks)

    @model_validator(mode="after")
    def samples_here(self) -> Self:
        if self.pair.llm_url and self.evaluate.sampling:
            raise ValueError(
                "evaluate.sampling: expected null: an LLM behind a server (pair.llm_url) is asked "
                "for greedy decoding only"
            )
        if self.serve.engine == "vllm" and self.evaluate.sampling:
            raise ValueError(
                "evaluate.sampling: expected null, since vLLM (serve.engine) samples in another way"
            )
        return self

    @field_validator("iterations")
    @classmethod
    def follow_each_other(cls, iterations: dict[str, Iteration]) -> dict[str, Iteration]:
        for number, (name, iteration) in enumerate(iterations.items(), start=1):
            if (name, iteration.previous) != (str(number), str(number - 1)):
                found = f"{name!r} after {iteration.previous!r}"
                raise ValueError(f'{found}: expected "{number}": {{previous: "{number - 1}"}}')
        return iterations


SHIPPED = Path(__file__).with_name("params.yaml")  # a copy of the project's own, for its values


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check `params.yaml`. Raises InputError with a line about each error.

    The environment variable `CITER_DEVICE` overrides `pair.device`.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; run in the project's folder")
    params = read_yaml(path, Params, SHIPPED, optional=("workers",))  # of which DVC reads none
    device = os.environ.get(DEVICE) or params.pair.device
    if device not in get_args(Device):
        raise InputError(f"{DEVICE}: {device!r}: expected 'auto', 'cpu' or 'cuda'")
    pair = params.pair.model_copy(update={"device": device})
    return params.model_copy(update={"pair": pair})
