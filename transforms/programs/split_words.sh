#!/bin/sh
# One line {"word": ...} for each word; flatmap mode. A pipeline of two programs: awk ends when tr does.
tr -cs '[:alnum:]' '\n' | awk 'length { print "{\"word\":\"" tolower($0) "\"}" }'
