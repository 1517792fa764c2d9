"""The per-token algorithm gives the labels of the labeller."""

import pyarrow as pa
import pyarrow.compute as pc

from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout
from tests.labelling.conftest import Taught
from tests.labelling.naive import label_naively

NEW_TOKENS = 24
SOME = 4  # problems


def test_naive_labels_equal_the_labellers(taught: Taught) -> None:
    some = dict(list(taught.examples.items())[:SOME])
    tokens = taught.tokens.filter(pc.is_in(taught.tokens["problem_id"], pa.array(list(some))))
    engine = Engine(taught.pair, 4, NEW_TOKENS)
    labeller = Labeller(taught.problems, some, Rollout(engine, SLM_ALONE, "slm"), 1)
    labels = labeller.label(tokens, lambda _: None)
    assert {"contested", "same_wrong", "llm_right"} <= {*labels["case"].to_pylist()}
    naively = [
        label
        for key, example in some.items()
        for label in label_naively(taught.pair, taught.problems[key], example, NEW_TOKENS)
    ]
    assert labels["label"].to_pylist() == naively
