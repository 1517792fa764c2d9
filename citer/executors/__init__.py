"""The kinds of executors. `citer.executor.executor_for` chooses one."""
