"""How other people's programs come in: their memory, their launches and their front ends, on the emulated GPU."""
