"""Routing inside vLLM (Model Runner V2): rules that end vLLM's drafts, and audits of them.

vLLM loads `citer.vllm.plugin` in every process (entry point `vllm.general_plugins`).
"""

KEY = "citer"  # in vLLM's additional_config, in a request's body and in its extra_args
