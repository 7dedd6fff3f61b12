"""What is sent to a server: prompts of exact lengths, data sets, traces and sessions."""
