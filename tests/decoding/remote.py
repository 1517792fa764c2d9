"""An LLM in a child process, behind the `Verifier` protocol."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from citer.decoding.answer import Work
from citer.decoding.verifier import ForcedScores, LocalVerifier, Query, Verdict, Verifier
from citer.models.folder import ModelCard
from citer.models.pair import Pair, Text


class RemoteVerifier:
    """Sends every query through a pipe. Only token ids and numbers come back."""

    def __init__(self, connection: Connection, card: ModelCard) -> None:
        self.card = card
        self._connection = connection

    @property
    def work(self) -> Work:
        return self._ask("work")

    def verdicts(self, queries: Sequence[Query]) -> list[list[Verdict]]:
        return self._ask("verdicts", list(queries))

    def score(self, texts: Sequence[Text]) -> ForcedScores:
        return ForcedScores(*map(torch.from_numpy, self._ask("score", list(texts))))

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._connection.send((name, arguments))
        return self._connection.recv()


@torch.inference_mode()
def serve(connection: Connection, verifier: LocalVerifier) -> None:
    """Answer queries until None arrives instead of one.

    The end of the pipe would not do: a process that is forked meanwhile keeps it open.
    """
    while query := connection.recv():
        name, arguments = query
        answer = getattr(verifier, name)
        answer = answer(*arguments) if callable(answer) else answer
        connection.send([part.numpy() for part in answer] if name == "score" else answer)


@contextmanager
def remote(pair: Pair, verifier: Verifier) -> Iterator[Pair]:
    """Yield the pair with its LLM in a child process. The pair holds no part of that LLM."""
    context = multiprocessing.get_context("fork")
    parent_end, child_end = context.Pipe()
    child = context.Process(target=_child, args=(parent_end, child_end, verifier), daemon=True)
    child.start()
    child_end.close()
    yield replace(pair, llm=RemoteVerifier(parent_end, verifier.card))  # type: ignore[arg-type]
    parent_end.send(None)
    child.join(60)
    parent_end.close()
    assert child.exitcode == 0


def _child(parent_end: Connection, child_end: Connection, verifier: LocalVerifier) -> None:
    parent_end.close()
    serve(child_end, verifier)
    os._exit(0)  # without what the parent registered to do at its own exit
