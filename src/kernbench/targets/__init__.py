"""The interface of targets (`target`), and their registry (`registry`)."""
