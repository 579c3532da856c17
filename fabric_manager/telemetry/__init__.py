"""What the process tells of itself: logs and metrics. Below everything, so that every layer may use it."""
