"""Why a run takes its time: floors, critical path, causes of lost time, tasks, the barrier pipeline."""
