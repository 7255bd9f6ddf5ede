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
        ("batched_incremental_attention", "one_warp"),
    ],
}


# random programs that together need the loops of barriers, mbarriers, copies, atomics, warps and clusters
PROGRAMS = (0, 3, 7, 24, 27, 32, 33, 492)


def run_programs() -> None:
    """Run random PTX programs, checked and recorded."""
    from kernbench import ptx
    from kernbench.ptx.reference.programs import safe_program

    for seed in PROGRAMS:
        program = safe_program(seed)
        device = ptx.EmulatedDevice("sm_90a")
        arrays = [device.array(array) for array in program.arrays()]
        kernel = ptx.parse(program.text).kernels["kernel"]
        run = device.launch(kernel, program.grid, program.block, arrays, cluster=program.cluster, record=True)
        assert run.safe, f"program {seed}: {run.findings}"


def main() -> None:
    """Run what needs the loops of the targets that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+", choices=RUNS)
    for target in parser.parse_args().targets:
        for name, panel in RUNS[target]:
            run = run_bench(find(name), panel, timed=True)
            assert run.safe, f"{name}, {panel}: {run.findings}"
        if target == "ptx":
            run_programs()


if __name__ == "__main__":
    main()
