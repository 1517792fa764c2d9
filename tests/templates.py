"""A tokenizer with role tokens, and chat templates in the form in which models document them."""

from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

ROLE_TOKENS = (
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    ),
    *("<|eot_id|>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
)
PLAIN_TOKENS = ("<think>", "</think>", "<box>")  # added, but not special

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

LLAMA3 = """\
{%- for message in messages -%}
{%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
    + message['content'] | trim + '<|eot_id|>' -%}
{%- if loop.index0 == 0 -%}{%- set content = bos_token + content -%}{%- endif -%}
{{ content }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""

GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
{{ raise_exception('System role not supported') }}
{%- endif -%}
{%- for message in messages -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif -%}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

QWEN3 = CHATML.replace(
    "message['content'] + '<|im_end|>'",
    "(message['content'].split('</think>')[-1].lstrip('\\n') "
    "if message['role'] == 'assistant' else message['content']) + '<|im_end|>'",
).replace(
    "{{ '<|im_start|>assistant\\n' }}",
    "{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}",
)

DATED = CHATML.replace(
    "{%- for",
    "{%- if not date_string is defined -%}{%- set date_string = strftime_now('%d %b %Y') -%}"
    "{%- endif -%}{{ '<|im_start|>system\\nToday: ' + date_string + '<|im_end|>\\n' }}{%- for",
    1,
)


def add_roles(tokenizer: PreTrainedTokenizerFast, template: str, bos: str | None = None) -> None:
    """Add all role tokens and a chat template. The tokenizer begins plain texts with `bos`."""
    tokenizer.add_tokens([AddedToken(name, special=True) for name in ROLE_TOKENS])
    tokenizer.add_tokens([AddedToken(name) for name in PLAIN_TOKENS])
    tokenizer.chat_template = template
    if bos:
        tokenizer.bos_token = bos
        ids = [(bos, tokenizer.convert_tokens_to_ids(bos))]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=ids
        )
