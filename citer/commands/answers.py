"""`citer generate`: answer questions with a router."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from citer.commands.extra import need_pipeline
from citer.config import load_params
from citer.errors import InputError
from citer.rule import Rule


def generate(
    router: Annotated[
        str,
        typer.Option(
            help="models:/NAME@ALIAS, models:/NAME/VERSION, or a router's folder. The folder of a "
            "registered router has its own rule; others, such as data/routers/2, need --rule."
        ),
    ],
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
    rule: Annotated[
        str | None,
        typer.Option(
            help="When the LLM is called; replaces the router's own rule: score τ | risk ρ | "
            'every γ, each with an optional audit β. For example "risk 0.8 audit 0.1".'
        ),
    ] = None,
    disagreements: Annotated[
        Path | None,
        typer.Option(
            help="Parquet table of the answers with what audits found in them: which tokens they "
            "checked, and on which of these the LLM disagreed. `prepare.audited` makes training "
            "rows of it."
        ),
    ] = None,
) -> None:
    """Answer questions with a router. Grade the answers if the file has the right ones.

    Needs params.yaml in the current folder.
    """
    params, parsed = load_params(), _rule(rule)
    with _bundle(router) as bundle:
        from citer.generate import generate

        generate(params, bundle, input, output, parsed, disagreements)


def _rule(text: str | None) -> Rule | None:
    try:
        return None if text is None else Rule.parse(text)
    except ValueError as error:
        raise InputError(f"--rule: {error}") from None


def _bundle(router: str) -> AbstractContextManager[Path]:
    if router.startswith("models:/"):
        need_pipeline("citer generate --router models:/…")
        from flows.registry import fetched_bundle

        return fetched_bundle(router)
    if not Path(router, "router.json").is_file():
        expected = "expected models:/NAME@ALIAS or a router's folder"
        raise InputError(f"--router: {router!r}: no router.json there, {expected}")
    return nullcontext(Path(router))
