"""`citer generate`: answer questions with a router."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from citer.cli.extra import need
from citer.config.params import Params, load_params
from citer.errors import InputError
from citer.rule import Rule

RouterOption = Annotated[
    str | None,
    typer.Option(
        help="models:/NAME@ALIAS, models:/NAME/VERSION, or a router's folder. The folder of a "
        "registered router has its own rule; others, such as data/routers/2, need --rule. Without "
        "--router, a rule that asks no trained head routes between pair.slm and pair.llm."
    ),
]
RuleOption = Annotated[
    str | None,
    typer.Option(
        help="When the LLM is called; replaces the router's own rule: score τ | risk ρ | "
        "every γ, each with an optional audit β, by SCORER, from lookup or both, cap K. "
        'For example "risk 0.8 audit 0.25 by narrow". Without a router, the SLM\'s largest '
        "probability scores by default."
    ),
]

Folder = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        help="Model folder. --slm and --llm together need no params.yaml, nor a router.",
    ),
]


def generate(
    input: Annotated[
        Path,
        typer.Option(
            help="Questions: JSON, JSON Lines, Parquet or CSV. "
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
        typer.Option(resolve_path=True, help="Answers, JSON lines. A repeated call continues."),
    ],
    router: RouterOption = None,
    rule: RuleOption = None,
    slm: Folder = None,
    llm: Folder = None,
) -> None:
    """Answer questions with a router. Grade the answers if the file has the right ones.

    Answers are greedy, or sampled as evaluate.sampling and seed in params.yaml say: an answer
    depends on the seed and on its own question only.
    """
    params, parsed = settings(slm, llm, router), parse_rule(rule)
    with routed_by(router, params, parsed) as (bundle, own):
        from citer.serving.generate import generate

        generate(params, bundle, input, output, own)


def settings(slm: Path | None, llm: Path | None, router: str | None) -> Params:
    """Return the settings of params.yaml, or those of a pair of folders. Raises InputError."""
    if not (slm or llm):
        return load_params()
    if router:
        raise InputError("--slm and --llm: expected no --router, which has its own SLM")
    if not (slm and llm):
        raise InputError("--slm and --llm: expected both, or none and params.yaml")
    from citer.serving.untrained import folder_params

    return folder_params(slm, llm)


@contextmanager
def routed_by(
    router: str | None, params: Params, rule: Rule | None
) -> Iterator[tuple[Path, Rule | None]]:
    """Yield a router's folder, or an untrained one's, and the rule in place of its own, if any."""
    if router:
        check_router(router)
        with fetched(router) as bundle:
            yield bundle, rule
    else:
        from citer.serving.untrained import untrained

        with untrained(params, rule) as bundle:
            yield bundle, None


def parse_rule(text: str | None) -> Rule | None:
    """Parse the option --rule. Raises InputError."""
    try:
        return None if text is None else Rule.parse(text)
    except ValueError as error:
        raise InputError(f"--rule: {error}") from None


def check_router(router: str) -> None:
    """Raise InputError if `--router` names neither a registered router nor a router's folder."""
    if router.startswith("models:/"):
        need("pipeline", "--router models:/…")
        if not re.fullmatch(r"models:/[^/@]+[/@][^/@]+", router):
            raise InputError(f"{router}: expected models:/NAME@ALIAS or models:/NAME/VERSION")
    elif not Path(router, "router.json").is_file():
        expected = "expected models:/NAME@ALIAS or a router's folder"
        raise InputError(f"--router: {router!r}: no router.json there, {expected}")


def fetched(router: str) -> AbstractContextManager[Path]:
    """Yield the folder of a router, which is read inside the block only."""
    if router.startswith("models:/"):
        from flows.tracking.registry import fetched_bundle

        return fetched_bundle(router)
    return nullcontext(Path(router))
