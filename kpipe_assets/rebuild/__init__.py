"""`kpipe rebuild`: load a new table beside the live one, compare the two, and exchange them."""
