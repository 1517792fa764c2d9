"""What vLLM's worker answers to questions of the API. vLLM adds these methods to its worker."""

from typing import Any

from citer.vllm.log import plain


class CountingWorker:
    model_runner: Any

    def audits(self) -> dict[str, int]:
        """Count the drafts that audits compared with the LLM's choice, by verdict."""
        total = self.model_runner.drafter.counts.total
        return {"agreed": total.audited - total.disagreed, "disagreed": total.disagreed}

    def take_visits(self, request_id: str) -> list[Any]:
        """Return the visits of a request, once. `request_id`: the API's, which vLLM extends."""
        counts = self.model_runner.drafter.counts
        for key in counts.requests:
            if key.rpartition("-")[0] == request_id:
                return plain(counts.take(key).visits)
        return []
