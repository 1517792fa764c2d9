"""Routing inside vLLM: a proposer that drafts with the SLM, and audits as its acceptance rule.

vLLM imports the class by its name (`--speculative-config`), and the entry point in every process:

    {"method": "custom_class", "model": "citer.vllm.RoutedProposer", "num_speculative_tokens": 16}
"""

from typing import Any

KEY = "citer"  # in vLLM's additional_config, in a request's body and in its extra_args
PROPOSER = "citer.vllm.RoutedProposer"


def __getattr__(name: str) -> Any:
    # The proposer imports torch and vLLM, which the readers of counts do not need.
    if name == "RoutedProposer":
        from citer.vllm.proposer import RoutedProposer

        return RoutedProposer
    raise AttributeError(name)
