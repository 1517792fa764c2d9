"""An LLM in a child process, behind the `Judge` protocol."""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from citer.decoding.judge import Judge, LocalJudge, ModelCard, Query, Scores, Text, Verdict
from citer.decoding.work import Work
from citer.models.pair import Pair


class RemoteJudge:
    """Sends every question through a pipe; only token ids and numbers come back."""

    def __init__(self, connection: Connection, card: ModelCard) -> None:
        self.card = card
        self._connection = connection

    @property
    def work(self) -> Work:
        return self._ask("work")

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        return self._ask("verdicts", list(queries))

    def score(self, texts: Sequence[Text]) -> Scores:
        return Scores(*map(torch.from_numpy, self._ask("score", list(texts))))

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._connection.send((name, arguments))
        return self._connection.recv()


@torch.inference_mode()
def serve(connection: Connection, judge: LocalJudge) -> None:
    """Answer until the other end is closed."""
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        answer = getattr(judge, name)
        answer = answer(*arguments) if callable(answer) else answer
        connection.send([part.numpy() for part in answer] if name == "score" else answer)


@contextmanager
def remote(pair: Pair, judge: Judge) -> Iterator[Pair]:
    """The pair with its LLM in a child process: none of it is left in this one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(ours, theirs, judge), daemon=True)
    child.start()
    theirs.close()
    yield replace(pair, llm=RemoteJudge(ours, judge.card))  # type: ignore[arg-type]
    ours.close()
    child.join(10)
    assert child.exitcode == 0


def _child(ours: Connection, theirs: Connection, judge: LocalJudge) -> None:
    ours.close()  # else the pipe never ends
    serve(theirs, judge)
