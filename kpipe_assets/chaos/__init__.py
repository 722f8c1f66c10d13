"""`kpipe chaos`: load copies of a pipeline while their runs are killed, stopped and failed, then prove the copies."""
