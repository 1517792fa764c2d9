"""What vLLM's worker answers to questions of the API. vLLM adds these methods to its worker."""

from typing import Any


class CountingWorker:
    model_runner: Any

    def audits(self) -> tuple[int, int]:
        """Return the drafts that audits compared with the LLM's choice; those that differed."""
        total = self.model_runner.drafter.counts.total
        return total.audited, total.disagreed
