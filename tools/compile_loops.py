"""Compiles the loops of targets before anything needs them: `python tools/compile_loops.py mesh npu ptx`.

They are kept on disk, and the processes of a test run that begin with them find them there instead of each compiling
their own. `make test` does this while it lints.
"""

import argparse

from kernbench.bench import find, run_bench

# runs that need most of the loops of a target
RUNS = {
    "mesh": [("milestone_gqa_llama70b", "single_user_decode")],
    "npu": [("paged_attention", "context_33"), ("paged_attention", "contexts_33_17")],
    "ptx": [
        ("gated_delta_rule_chunk_output", "sm_90a_keys_64"),
        ("gated_delta_rule_chunk_output", "sm_100a_keys_64"),
        ("batched_incremental_attention", "shared_kv"),
    ],
}


def main() -> None:
    """Run what needs the loops of the targets that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+", choices=RUNS)
    for target in parser.parse_args().targets:
        for name, panel in RUNS[target]:
            run = run_bench(find(name), panel, timed=target != "ptx")
            assert run.safe, f"{name}, {panel}: {run.findings}"


if __name__ == "__main__":
    main()
