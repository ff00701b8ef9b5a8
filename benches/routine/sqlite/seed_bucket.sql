insert or ignore into seed_bucket_lock (bucket_key) values (?1)
