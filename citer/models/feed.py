"""How the new tokens of many rows go into one forward: end to end, none padded."""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import torch
from torch import Tensor

# Of hidden_WH, and of the given_WK of the turns, makes out_WC, in float64. It must not look into
# its tensors from the host, nor make tensors there: on a GPU it is captured with the forward.
Read = Callable[[Tensor, Tensor], Tensor]


class Turn(NamedTuple):
    """A slot that is to consume what it lacks of `ids`.

    The states after its last tokens are read, one for each row of `given`, K integers each.
    """

    slot: int
    ids: Sequence[int]
    given: Sequence[Sequence[int]]


class Feed(NamedTuple):
    """M new tokens of N rows, at most T of each, whose longest row then has P positions.

    Only attention needs the rows side by side, each filled up with its last token: `padded_NT`
    says which token stands where, `flat_M` leads back. Both are None where all rows have `width`.
    What a forward is for are the states after `wanted_W`, each row's last tokens.
    """

    rows: slice | Tensor  # the rows' slots
    span: int  # P
    fresh: bool  # no row had anything before
    slot_M: Tensor
    position_M: Tensor
    width: int = 1
    wanted_W: Tensor | None = None  # None: all
    padded_NT: Tensor | None = None
    flat_M: Tensor | None = None
    mask_NTP: Tensor | None = None  # what a token may attend to; None: all, or before it if fresh

    def side_by_side(self, tokens_M: Tensor) -> Tensor:
        """(M, ...) → (N, T, ...)"""
        if self.padded_NT is None:
            return tokens_M.unflatten(0, (-1, self.width))
        return tokens_M[self.padded_NT]

    def end_to_end(self, tokens_NT: Tensor) -> Tensor:
        """(N, T, ...) → (M, ...)"""
        flat = tokens_NT.flatten(0, 1)
        return flat if self.flat_M is None else flat[self.flat_M]

    def wanted(self, tokens_M: Tensor) -> Tensor:
        """(M, ...) → (W, ...)"""
        return tokens_M if self.wanted_W is None else tokens_M[self.wanted_W]


def lay_out(
    slots: list[int],
    starts: list[int],
    counts: list[int],
    wanted: list[int],
    device: torch.device,
) -> Feed:
    """A feed of `counts[n]` tokens to the slot that already holds `starts[n]` positions.

    The states after each row's last `wanted[n]` tokens are asked for.
    """
    span = max(start + count for start, count in zip(starts, counts, strict=True))
    slot_N, start_N, count_N = torch.tensor([slots, starts, counts], device=device)
    # A slice where it can be one: reading it copies nothing.
    rows = slice(slots[0], slots[-1] + 1) if _consecutive(slots) else slot_N
    feed = Feed(rows, span, not any(starts), slot_N, start_N)
    if max(counts) > 1:
        feed = _uneven(feed, start_N, count_N, max(counts), sum(counts))
        ends = accumulate(counts)
        places = chain.from_iterable(range(e - n, e) for e, n in zip(ends, wanted, strict=True))
        feed = feed._replace(wanted_W=torch.tensor(list(places), device=device))
    even = max(counts) == 1 and min(starts) == max(starts)
    return feed if even or feed.fresh else feed._replace(mask_NTP=_mask(feed))


def lay_out_evenly(
    rows: slice | Tensor,
    span: int,
    width: int,
    wanted: int,
    slot_N: Tensor,
    start_N: Tensor,
    count_N: Tensor,
) -> Feed:
    """A feed of `width` tokens to every slot, of which the first `count_N` are meant.

    The states after `wanted` tokens of each row are asked for, the last of them its last one that
    is meant. Nothing depends on what the tensors hold: it can be laid out before they hold it.
    """
    column_T = torch.arange(width, device=slot_N.device)
    column_NU = (count_N[:, None] - wanted + column_T[:wanted]).clamp(min=0)
    first_N = torch.arange(len(slot_N), device=slot_N.device) * width
    feed = Feed(
        rows,
        span,
        fresh=False,
        slot_M=slot_N.repeat_interleave(width),
        position_M=(start_N[:, None] + column_T).flatten(),
        width=width,
        wanted_W=(first_N[:, None] + column_NU).flatten(),
    )
    return feed._replace(mask_NTP=_mask(feed))


def _uneven(feed: Feed, start_N: Tensor, count_N: Tensor, width: int, total: int) -> Feed:
    first_N = count_N.cumsum(0) - count_N
    row_M = torch.repeat_interleave(count_N, output_size=total)
    column_M = torch.arange(total, device=row_M.device) - first_N[row_M]
    column_T = torch.arange(width, device=row_M.device)
    return feed._replace(
        slot_M=feed.slot_M[row_M],
        position_M=start_N[row_M] + column_M,
        padded_NT=first_N[:, None] + torch.minimum(column_T, count_N[:, None] - 1),
        flat_M=row_M * width + column_M,
    )


def _mask(feed: Feed) -> Tensor:
    position_NT = feed.side_by_side(feed.position_M)
    return torch.arange(feed.span, device=position_NT.device) <= position_NT[:, :, None]


def _consecutive(slots: list[int]) -> bool:
    return slots == list(range(slots[0], slots[0] + len(slots)))
