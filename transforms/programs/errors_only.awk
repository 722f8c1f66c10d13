#!/usr/bin/awk -f
# Keeps the lines of a web log whose status (ninth field) is 500 or more; filter mode.
$9 >= 500
