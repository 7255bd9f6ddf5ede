"""What concerns the whole GPU: which CTAs its SMs hold, and where clusters sit."""
