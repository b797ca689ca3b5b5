"""Where a study is shown beside its own files, one file each: told, never asked."""
