-- Epoch of the cycle that dropped it; without one, the next seal sets its own.
ALTER TABLE dropped_blobs ADD COLUMN epoch INTEGER
