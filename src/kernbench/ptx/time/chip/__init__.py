"""What concerns the whole GPU: which CTAs its SMs hold, where clusters sit, its clock under power."""
