"""The chat template in docs/serving.md writes the plain prompt of the embedded pair."""

from citer.models.folder import ModelFolder
from tests.tasks import prompt_text
from tests.vllm.api import documented_chat, documented_template
from tests.vllm.offline import LLM, questions


def test_the_documented_template_writes_the_prompts_of_the_router() -> None:
    for problem in questions(3):
        chat = [{"role": "user", "content": problem.question}]
        rendered = ModelFolder(LLM).tokenizer.apply_chat_template(
            chat, chat_template=documented_template(), add_generation_prompt=True, tokenize=False
        )
        assert rendered == prompt_text(problem)


def test_the_documented_question_is_one_of_the_embedded_ones() -> None:
    assert any(repr(problem.question)[1:-1] in documented_chat() for problem in questions(500))
