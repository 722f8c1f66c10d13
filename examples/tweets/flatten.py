#!/usr/bin/env python3
"""One flat JSON object for each tweet. A line that is not JSON is passed on as it is: kpipe sets it aside."""

import json
import sys

for line in sys.stdin:
    try:
        tweet = json.loads(line)
        row = {
            "id": tweet["id"],
            "author": tweet["user"]["name"],
            "followers": tweet["user"]["followers"],
            "text": tweet["text"],
            "words": len(tweet["text"].split()),
            "hashtags": tweet.get("entities", {}).get("hashtags", []),
        }
        sys.stdout.write(json.dumps(row) + "\n")
    except (ValueError, KeyError, TypeError):
        sys.stdout.write(line)
sys.stdout.flush()
