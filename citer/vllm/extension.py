"""What vLLM's worker answers to questions of the API. vLLM adds these methods to its worker."""

from typing import Any


class CountingWorker:
    model_runner: Any

    def audits(self) -> dict[str, int]:
        """Count the drafts that audits compared with the LLM's choice, by verdict."""
        total = self.model_runner.drafter.counts.total
        return {"agreed": total.audited - total.disagreed, "disagreed": total.disagreed}
