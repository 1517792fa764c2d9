"""Route without a trained head: a bundle of the pair alone, for rules that ask none.

Such rules visit every γ tokens, or score by a certainty of the SLM.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from citer.config.pair import PairParams
from citer.config.params import SHIPPED, DecodeParams, Params, load_params
from citer.config.sources import SourceFile
from citer.decoding.policy import head_name
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import ModelFolder
from citer.models.router import Head, Router
from citer.rule import Rule
from citer.stages.folders import base_pair

CERTAINTY = "probability"  # of rules that name no scorer
NO_HEAD = "none"  # the only head of such a bundle
AS_IT_STANDS = SourceFile(path="data/own/none.jsonl", task="open")  # only its task is used


def folder_params(slm: Path, llm: Path) -> Params:
    """Return the shipped settings with a pair of your own, and its chat template if it has one.

    A question is asked as it stands. Raises InputError if a folder has no model or no tokenizer.
    """
    shipped = load_params(SHIPPED)
    kind = "chat" if ModelFolder(llm).tokenizer.chat_template else "plain"
    own = {"slm": str(slm), "llm": str(llm), "dtype": "bfloat16", "prompt": kind}
    pair = PairParams(**shipped.pair.model_dump() | own)
    half = min(ModelFolder(each).context for each in (slm, llm)) // 2  # a prompt needs room, too
    answer = DecodeParams(slots=8, max_new_tokens=min(512, half))
    asked = shipped.prepare.model_copy(update={"toy": None, "train": (AS_IT_STANDS,)})
    return shipped.model_copy(update={"pair": pair, "answer": answer, "prepare": asked})


@contextmanager
def untrained(params: Params, rule: Rule | None) -> Iterator[Path]:
    """Yield a bundle of the pair for a rule. Raises InputError without one that asks no head."""
    if rule is None:
        raise InputError('--router or --rule: expected one, such as --rule "every 6 audit 1"')
    own = certain(rule)
    head_name((), own)  # raises
    folders = base_pair(params)
    card = folders.identity(params.pair.dtype)
    card |= {"prompts": params.prompts.model_dump(mode="json"), "threshold": {"rule": asdict(own)}}
    with TemporaryDirectory(prefix="citer-") as folder:
        bundle = Path(folder) / "router"
        write_bundle(bundle, Router({NO_HEAD: Head(None)}), card)
        (bundle / "slm").symlink_to(Path(params.pair.slm).absolute())
        yield bundle


def certain(rule: Rule) -> Rule:
    """Let the SLM's certainty score if a rule names no scorer and needs one."""
    needs_none = rule.visit == "every" or rule.draft == "lookup" or not rule.asks_slm
    return rule if rule.by or needs_none else replace(rule, by=CERTAINTY)
