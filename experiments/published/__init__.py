"""Published tables and studies beside ours."""
