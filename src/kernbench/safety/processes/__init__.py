"""A launch in several processes: work units for workers, forks that continue by themselves, and lost side effects."""
