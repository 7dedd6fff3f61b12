"""Load generation against OpenAI-compatible servers, and the engines that serve."""
