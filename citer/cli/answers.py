"""`citer generate`: answer questions with a router."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from citer.cli.extra import need_pipeline
from citer.config.params import SamplingParams, load_params
from citer.errors import InputError
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.sections import Seed, complaint

RouterOption = Annotated[
    str,
    typer.Option(
        help="models:/NAME@ALIAS, models:/NAME/VERSION, or a router's folder. The folder of a "
        "registered router has its own rule; others, such as data/routers/2, need --rule."
    ),
]
RuleOption = Annotated[
    str | None,
    typer.Option(
        help="When the LLM is called; replaces the router's own rule: score τ | risk ρ | "
        "every γ, each with an optional audit β. "
        'For example "risk 0.8 audit 0.1".'
    ),
]


def generate(
    router: RouterOption,
    input: Annotated[
        Path,
        typer.Option(
            help="Questions: JSON, JSON Lines, Parquet or CSV, one task and one format per file. "
            'Rows of math: {"problem": "…"}; of mc: '
            '{"question": "…", "choices": {"text": ["…", "…"], "label": ["A", "B"]}}; '
            "or rows of GSM8K, MATH, CommonsenseQA, ARC or MMLU as published. "
            'A row may have a conversation instead of its question: {"messages": [{"role": '
            '"user", "content": "…"}]}. The right answer is optional: "answer" (math), "answerKey" '
            "(mc)."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            help="Answers, one JSON line each. Repeat a killed call, and it resumes after its "
            "last answer."
        ),
    ],
    rule: RuleOption = None,
    disagreements: Annotated[str | None, typer.Option(hidden=True)] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Sample at this temperature. Without it, answers are greedy."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from the k likeliest tokens only.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the likeliest tokens with this share of probability only."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the samples, by default 0. An answer depends on the seed and on its "
            "own question, but not on the rest of the file."
        ),
    ] = None,
) -> None:
    """Answer questions with a router. Grade the answers if the file has the right ones.

    Needs params.yaml in the current folder.
    """
    if disagreements is not None:
        raise InputError("--disagreements was removed: `citer serve --log` writes such tables")
    params, parsed = load_params(), parse_rule(rule)
    sampler = _sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with _bundle(router) as bundle:
        from citer.serving.generate import generate

        generate(params, bundle, input, output, parsed, sampler)


def parse_rule(text: str | None) -> Rule | None:
    """Parse the option --rule. Raises InputError."""
    try:
        return None if text is None else Rule.parse(text)
    except ValueError as error:
        raise InputError(f"--rule: {error}") from None


class _Options(SamplingParams):
    seed: Seed = 0


def _sampler(**options: float | None) -> Sampler:
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return ALL_GREEDY
    if "temperature" not in given:
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"--{option}: expected --temperature, too")
    try:
        checked = _Options.model_validate(given)
    except ValidationError as error:
        raise InputError(f"--{complaint(error)}".replace("top_", "top-", 1)) from None
    return Sampler(SamplingParams(**checked.model_dump(exclude={"seed"})), checked.seed)


def _bundle(router: str) -> AbstractContextManager[Path]:
    if router.startswith("models:/"):
        need_pipeline("citer generate --router models:/…")
        from flows.checks import check_uri

        check_uri(router)
        from flows.tracking.registry import fetched_bundle

        return fetched_bundle(router)
    return nullcontext(router_folder(router))


def router_folder(router: str) -> Path:
    """Return the folder that --router names. Raises InputError."""
    if not Path(router, "router.json").is_file():
        expected = "expected models:/NAME@ALIAS or a router's folder"
        raise InputError(f"--router: {router!r}: no router.json there, {expected}")
    return Path(router)
