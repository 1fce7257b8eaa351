"""Jobs as users see them: progress, cancel, retry; and the stream of all that happens."""
