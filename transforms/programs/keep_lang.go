// Keeps the JSON lines whose "lang" is one of the arguments; filter mode.
// A line that is not JSON is kept, so that kpipe makes a dead letter of it.
//
//	go build -o keep_lang keep_lang.go
//	transform: {program: keep_lang, args: [en, de], mode: filter}
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func run(languages []string) error {
	wanted := map[string]bool{}
	for _, language := range languages {
		wanted[language] = true
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		line, err := in.ReadBytes('\n') // of any length, unlike bufio.Scanner
		if len(line) > 0 {
			var tweet struct {
				Lang string `json:"lang"`
			}
			if json.Unmarshal(line, &tweet) != nil || wanted[tweet.Lang] {
				if _, err := out.Write(line); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "keep_lang:", err)
		os.Exit(1)
	}
}
