"""What the folder holds: the orchestration, and the kernels that it submits by number."""

ORCHESTRATION = {"source": "orchestration/paged_attention.py", "function_name": "paged_attention"}

KERNELS = [
    {"func_id": 0, "name": "QK", "source": "aic/qk.py", "core_type": "aic"},
    {"func_id": 1, "name": "SOFTMAX", "source": "aiv/softmax.py", "core_type": "aiv"},
    {"func_id": 2, "name": "PV", "source": "aic/pv.py", "core_type": "aic"},
    {"func_id": 3, "name": "UPDATE", "source": "aiv/update.py", "core_type": "aiv"},
]

RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer", "aicpu_thread_num": 4, "block_dim": 24}
