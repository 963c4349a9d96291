-- Expired deduplication ids are removed by a sweep through the table, which costs a send less than an index by time.

drop index inturn_dedup_due;
