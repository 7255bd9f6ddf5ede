"""How user programs run on the emulated GPU: their memory, their launches and their front ends."""
