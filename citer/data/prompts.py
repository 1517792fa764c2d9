"""Prompt formats turn a problem into token ids, the same for both models of a pair."""

import hashlib
import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from citer.data.problems import Message, Problem
from citer.data.tasks import EMBEDDED_TASKS, find_task
from citer.errors import InputError, shown
from citer.sections import Listed, Section

if TYPE_CHECKING:  # takes a second to import
    from transformers import PreTrainedTokenizerBase

CLOCK = "strftime_now"  # a function of templates, which returns the date

PromptKind = Literal["plain", "chat"]
SomeText = Annotated[str, Field(min_length=1)]
StopStrings = Annotated[tuple[SomeText, ...], Listed]


class ChatParams(Section):
    """Input of a chat template besides the turns: a system prompt, and variables by name."""

    system: SomeText | None = None
    variables: dict[str, JsonValue] = Field(default_factory=dict)


class PromptSettings(Section):
    """Everything from which a folder's prompt format is made. A router's card stores it."""

    kind: PromptKind = "plain"
    chat: ChatParams = ChatParams()
    stop: StopStrings = ()  # texts that end an answer
    tasks: Annotated[tuple[str, ...], Listed] = EMBEDDED_TASKS  # those in use


class Encoded(NamedTuple):
    """Token ids. `reference_ids` ends with EOS. It is empty if there is no reference.

    With P = len(prompt_ids), the state at position P + i - 1 predicts row i of a token table.
    """

    prompt_ids: list[int]
    reference_ids: list[int]


class PromptFormat(ABC):
    """Turns problems into token ids. A pair's two tokenizers must give the same ids.

    `eos_id` ends a reference: the first of `eos_ids`, unless the format writes another one.
    """

    def __init__(
        self, settings: PromptSettings, tokenizer: "PreTrainedTokenizerBase", eos_ids: Sequence[int]
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_id = eos_ids[0]
        self.tasks = tuple(sorted(settings.tasks))
        self.stop = settings.stop
        for text in self.stop:
            if text not in tokenizer.decode(self._ids(text), skip_special_tokens=True):
                found = f"pair.stop: {text!r}: not in the text of an answer"
                raise InputError(f"{found}; expected text without special tokens")

    def _ids(self, text: str) -> list[int]:
        """Return the ids of a text, in which the names of special tokens are these tokens."""
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=False)
        return encoded.input_ids

    @property
    @abstractmethod
    def digest(self) -> str:
        """A digest of the format, which is part of a router's identity."""

    @abstractmethod
    def prompt_ids(self, problem: Problem) -> list[int]:
        """Return the ids before an answer. Raises InputError if the format cannot express them."""

    def check_task(self, problem: Problem) -> None:
        """Raise InputError for a problem of a task that params.yaml no longer names."""
        if problem.task not in self.tasks:
            tasks = ", ".join(self.tasks)
            raise InputError(f"task {problem.task!r}: expected {tasks}; run `citer prepare` again")

    def completion_ids(self, text: str) -> list[int]:
        """Return the ids of an answer, EOS included. Raises InputError if it has a stop text."""
        for stop in self.stop:
            if stop in text:
                raise InputError(f"reference: contains {stop!r}, one of pair.stop")
        return [*token_ids(text, self.tokenizer, begins=False), self.eos_id]

    def encode(self, problem: Problem) -> Encoded:
        """Encode both separately, so that no token spans them. InputErrors name the problem."""
        text = problem.reference
        try:
            reference_ids = [] if text is None else self.completion_ids(text)
            return Encoded(self.prompt_ids(problem), reference_ids)
        except InputError as error:
            raise InputError(f"problem {problem.problem_id}: {error}") from None

    def encode_all(self, problems: Iterable[Problem]) -> dict[str, Encoded]:
        return {problem.problem_id: self.encode(problem) for problem in problems}

    def examples(self) -> list[Problem]:
        """Return an example of each task in use, with its reference, to compare two tokenizers."""
        tasks = [task for task in map(find_task, self.tasks) if task.example]
        return [task.problem(task.example, "example") for task in tasks]

    @property
    def task_digests(self) -> list[str]:
        """The digests of the user's tasks in use, whose prompts are code."""
        return [task.digest for task in map(find_task, self.tasks) if task.digest]


class PlainPrompts(PromptFormat):
    """The plain template of each task, without chat roles.

    Raises InputError if the tokenizer ends a prompt with EOS.
    """

    def __init__(
        self, settings: PromptSettings, tokenizer: "PreTrainedTokenizerBase", eos_ids: Sequence[int]
    ) -> None:
        super().__init__(settings, tokenizer, eos_ids)
        last, own = (token_ids("a", tokenizer, begins=each)[-1:] for each in (True, False))
        if last != own and last[0] in eos_ids:
            name = tokenizer.convert_ids_to_tokens(last[0])
            expected = "expected none (tokenizer.json, `add_eos_token` in tokenizer_config.json)"
            raise InputError(f"the tokenizer ends a prompt with the EOS {name!r}; {expected}")

    @cached_property
    def digest(self) -> str:
        texts = [text for task in self.tasks for text in find_task(task).templates]
        stops = [f"stop {text}" for text in self.stop]
        return _digest("\0".join([*texts, *self.task_digests, *stops]))

    def prompt_ids(self, problem: Problem) -> list[int]:
        self.check_task(problem)
        if problem.messages:
            raise InputError("messages: turns before the question; expected pair.prompt: chat")
        text = find_task(problem.task).prompt_text(problem)
        return token_ids(text, self.tokenizer, begins=True)


class ChatPrompts(PromptFormat):
    """The tokenizer's chat template. The prompt ends where the assistant's answer begins.

    The template writes BOS and all role tokens, so the tokenizer adds none. A reference ends with
    the token that the template writes after an assistant's turn, which must be one of `eos_ids`.
    Raises InputError if the template is missing, or raises for a system prompt or the variables.
    """

    def __init__(
        self, settings: PromptSettings, tokenizer: "PreTrainedTokenizerBase", eos_ids: Sequence[int]
    ) -> None:
        super().__init__(settings, tokenizer, eos_ids)
        self.chat = settings.chat
        try:
            self.template = tokenizer.get_chat_template()
        except ValueError:
            raise InputError(
                "no chat template; expected chat_template.jinja, or `chat_template` in "
                "tokenizer_config.json, or pair.prompt: plain"
            ) from None
        self._check_variables()
        self.eos_id = self._end_of_turn(eos_ids)

    @cached_property
    def digest(self) -> str:
        """Covers the template's text, its input, the rendered examples and the user's code."""
        rendered = [self.text(problem) for problem in self.examples()]
        parts = [self.template, self.chat.model_dump(), self.stop, rendered, *self.task_digests]
        return _digest(json.dumps(parts, sort_keys=True))

    def prompt_ids(self, problem: Problem) -> list[int]:
        return self._ids(self.text(problem))

    def text(self, problem: Problem) -> str:
        """Return the rendered prompt. Raises InputError if a turn contains a control token."""
        self.check_task(problem)
        question = find_task(problem.task).message_text(problem)
        turns = self._turns(problem.messages or (), question)
        for turn in turns:
            for number in self._ids(turn.content):
                if name := self._control_tokens.get(number):
                    found = f"the {turn.role}'s turn contains {name!r}"
                    raise InputError(
                        f"{found}; expected text without the template's control tokens"
                    )
        return self._render(turns)

    def _turns(self, earlier: Sequence[Message], question: str) -> list[Message]:
        """Return all turns. A system turn of the problem replaces the system prompt."""
        own = self.chat.system
        if own and not (earlier and earlier[0].role == "system"):
            earlier = [Message("system", own), *earlier]
        return [*earlier, Message("user", question)]

    def _render(self, turns: Sequence[Message], *, answered: bool = False) -> str:
        conversation = [{"role": turn.role, "content": turn.content} for turn in turns]
        # A prompt must not depend on the day, so a template that calls the clock fails.
        variables: dict[str, Any] = {CLOCK: None} | self.chat.variables
        try:
            rendered = self.tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=not answered, **variables
            )
        except Exception as error:  # a template may raise anything
            roles = ", ".join(turn.role for turn in turns)
            reason = " ".join(str(error).split())
            if CLOCK in self.template and isinstance(error, TypeError):
                reason = "it writes the date; expected a fixed one there or in pair.chat.variables"
            raise InputError(f"the chat template refuses the turns {roles}: {reason}") from None
        return str(rendered)

    @cached_property
    def _control_tokens(self) -> dict[int, str]:
        """The added tokens that can begin or end a turn: special ones, and the template's own.

        Runs of white space, which some tokenizers add, are no control tokens.
        """
        added = self.tokenizer.added_tokens_decoder.items()
        return {
            number: token.content
            for number, token in added
            if token.special or (token.content.strip("▁ \n\t") and token.content in self.template)
        }

    def _check_variables(self) -> None:
        taken = {"messages", *inspect.signature(self.tokenizer.apply_chat_template).parameters}
        for name in self.chat.variables:
            if name in taken or not re.search(rf"\b{re.escape(name)}\b", self.template):
                raise InputError(
                    f"pair.chat.variables: {name!r}: expected a variable of the chat template"
                )

    def _end_of_turn(self, eos_ids: Sequence[int]) -> int:
        """Return the first token that the template writes after an assistant's turn."""
        answer = "ANSWER"
        turns = [*self._turns((), "QUESTION"), Message("assistant", answer)]
        _, found, written = self._render(turns, answered=True).rpartition(answer)
        ids = self._ids(written.strip()) if found else []
        if not ids or ids[0] not in eos_ids:
            names = ", ".join(map(repr, self.tokenizer.convert_ids_to_tokens(list(eos_ids))))
            raise InputError(
                f"the chat template writes {shown(written)} after an assistant's turn; "
                f"expected one of the EOS tokens {names}"
            )
        return ids[0]


FORMATS: dict[PromptKind, type[PromptFormat]] = {"plain": PlainPrompts, "chat": ChatPrompts}


def token_ids(text: str, tokenizer: "PreTrainedTokenizerBase", *, begins: bool) -> list[int]:
    """Return the ids of a text. The name of a special token in it is encoded as ordinary text.

    If the text `begins` a sequence, the tokenizer adds its own special tokens, such as BOS. An
    added token that is not special gets its own id.
    """
    return tokenizer(text, add_special_tokens=begins, split_special_tokens=True).input_ids


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
