"""Asynchronous matrix units: wgmma, and tcgen05 with its tensor memory."""
