"""Running a launch: batches of resident CTAs, the scheduler, schedules, spinning loops."""
