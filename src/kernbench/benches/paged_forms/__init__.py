"""Paged attention on the npu in three forms: staged tasks, fused cores, and groups of steps."""
