#!/usr/bin/env python3
"""One flat JSON object for each tweet; map mode: as many lines out as in.

A line that is not a JSON object goes through as it is, so that kpipe keeps it as a dead letter with its offset.
Only the standard library. Reads large blocks, since one call per line would cost more than parsing does.
"""

import json
import sys

BLOCK_BYTES = 1 << 20
parse = json.JSONDecoder().scan_once  # json.loads without its checks of the argument, which cost a tenth
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
NOTHING = {}


def a_dict(value):
    """Missing, null and nonsense alike become an empty object."""
    return value if type(value) is dict else NOTHING


def flat(tweet):
    get = tweet.get
    user = a_dict(get("user")).get
    entities = a_dict(get("entities")).get
    place = a_dict(get("coordinates")).get
    hashtags = entities("hashtags")
    mentions = entities("mentions")
    return {
        "id": get("id"),
        "created_at": get("created_at"),
        "lang": get("lang"),
        "text": get("text"),
        "user_id": user("id"),
        "user_name": user("screen_name"),
        "followers": user("followers_count"),
        "verified": user("verified"),
        "location": user("location"),
        "hashtags": [a_dict(tag).get("text") for tag in hashtags] if type(hashtags) is list else [],
        "mentions": len(mentions) if type(mentions) is list else 0,
        "lat": place("lat"),
        "lon": place("lon"),
        "retweets": get("retweet_count"),
        "favorites": get("favorite_count"),
        "reply_to": get("reply_to"),
    }


def convert(line):
    """One line, without its newline, as bytes."""
    try:
        text = line.decode()
        try:
            tweet, end = parse(text, 0)
            if end != len(text):  # white space, or more than one value: the strict parser decides
                tweet = json.loads(text)
        except StopIteration:  # white space first, or nothing
            tweet = json.loads(text)
        if type(tweet) is not dict:
            return line
        row = flat(tweet)
        try:
            return encode(row).encode()
        except UnicodeEncodeError:  # half of a surrogate pair: legal as an escape only
            return json.dumps(row, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return line


def main():
    read, write = sys.stdin.buffer.raw.read, sys.stdout.buffer.write
    rest = b""
    while block := read(BLOCK_BYTES):
        *lines, last = block.split(b"\n")
        if lines:
            lines[0] = rest + lines[0]
            rest = last
            write(b"\n".join([*map(convert, lines), b""]))
        else:
            rest += last
    if rest:
        write(convert(rest) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
