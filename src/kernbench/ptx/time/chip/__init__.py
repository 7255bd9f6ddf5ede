"""The GPU as a whole: how many CTAs its SMs hold, placement of clusters, the clock under power limits."""
