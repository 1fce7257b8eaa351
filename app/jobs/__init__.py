"""Jobs as users see them: progress, cancel, retry, events."""
