"""Route without a trained head: a bundle of the pair alone, for rules that ask none.

Such rules visit every γ tokens, or score by a certainty of the SLM.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from citer.config.params import Params
from citer.decoding.policy import head_name
from citer.errors import InputError
from citer.models.bundle import folder_identity, write_bundle
from citer.models.router import Head, Router
from citer.rule import Rule
from citer.stages.folders import base_pair

CERTAINTY = "probability"  # of rules that name no scorer


@contextmanager
def untrained(params: Params, rule: Rule | None) -> Iterator[Path]:
    """Yield a bundle of the pair that `params` names, with this rule, inside the block only.

    Raises InputError without a rule, or if the rule needs a trained head.
    """
    if rule is None:
        raise InputError('--router or --rule: expected one, such as --rule "every 6 audit 1"')
    own = certain(rule)
    head_name((), own)  # raises
    folders = base_pair(params)
    card = folder_identity(folders, params.pair.dtype)
    card |= {"prompts": params.prompts.model_dump(mode="json"), "threshold": {"rule": asdict(own)}}
    with TemporaryDirectory(prefix="citer-") as folder:
        bundle = Path(folder) / "router"
        write_bundle(bundle, Router({"none": Head(None)}), card)
        (bundle / "slm").symlink_to(Path(params.pair.slm).absolute())
        yield bundle


def certain(rule: Rule) -> Rule:
    """Let the SLM's certainty score if a rule names no scorer and needs one."""
    needs_none = rule.visit == "every" or rule.draft == "lookup" or not rule.asks_slm
    return rule if rule.by or needs_none else replace(rule, by=CERTAINTY)
