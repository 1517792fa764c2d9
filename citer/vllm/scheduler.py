"""vLLM's scheduler, which also counts the LLM's steps of each request. vLLM loads this module."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class CountingScheduler(Scheduler):
    """Every output has the counts of its request so far.

    vLLM itself counts only the steps that verified a draft, and sends its counts with the last
    output. But a stop text ends a request in the API's process, so no output is known to be the
    last one.
    """

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        results = super().update_from_output(scheduler_output, model_runner_output)
        drafts = scheduler_output.scheduled_spec_decode_tokens
        for result in results.values():
            for output in result.outputs:
                self._count(output, drafted=bool(drafts.get(output.request_id)))
        return results

    def _count(self, output: Any, *, drafted: bool) -> None:
        running = self.requests.get(output.request_id)
        counts = output.spec_decode_metrics or (running and running.spec_decode_metrics)
        if counts and output.new_token_ids:
            if not drafted:
                counts.observe(num_draft_tokens=0, num_accepted=0)
            output.spec_decode_metrics = counts
