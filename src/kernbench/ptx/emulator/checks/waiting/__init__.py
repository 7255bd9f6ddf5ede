"""Who waits for what in a deadlock, and who ended or went elsewhere instead of coming."""
