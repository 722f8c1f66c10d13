#!/bin/sed -Ef
# Hides what looks like a mail address; map mode.
s/[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}/***@***/g
