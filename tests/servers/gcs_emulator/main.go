// An emulator of Google Cloud Storage: fake-gcs-server, with two more requests of the XML API.
//
// kpipe's client uses the JSON API, which fake-gcs-server has, with conditions. delta-rs uses the XML API. Its puts are passed on as
// uploads of the JSON API, with their condition; and of a list only the names after `start-after` are answered.
package main

import (
	"encoding/json"
	"encoding/xml"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type stored struct {
	Etag       string `json:"etag"`
	Generation string `json:"generation"`
}

func isXMLPut(r *http.Request) bool {
	for _, prefix := range []string{"/upload/", "/storage/", "/_internal/"} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return false
		}
	}
	return r.Method == http.MethodPut
}

func list(next http.Handler, w http.ResponseWriter, r *http.Request, after string) {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	var found fakestorage.ListBucketResult
	if answer.Code != http.StatusOK || xml.Unmarshal(answer.Body.Bytes(), &found) != nil {
		http.Error(w, answer.Body.String(), answer.Code)
		return
	}
	kept := found.Contents[:0]
	for _, each := range found.Contents {
		if each.Key > after {
			kept = append(kept, each)
		}
	}
	found.Contents, found.KeyCount = kept, len(kept)
	data, err := xml.Marshal(found)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = w.Write(append([]byte(xml.Header), data...))
}

func withXML(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if after := r.URL.Query().Get("start-after"); after != "" && r.Method == http.MethodGet {
			list(next, w, r, after)
			return
		}
		if !isXMLPut(r) {
			next.ServeHTTP(w, r)
			return
		}
		bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if r.URL.RawQuery != "" || r.Header.Get("x-goog-copy-source") != "" {
			http.Error(w, "not emulated", http.StatusNotImplemented)
			return
		}
		query := url.Values{"uploadType": {"media"}, "name": {name}}
		if generation := r.Header.Get("x-goog-if-generation-match"); generation != "" {
			query.Set("ifGenerationMatch", generation)
		}
		upload := r.Clone(r.Context())
		upload.Method = http.MethodPost
		upload.URL = &url.URL{Path: "/upload/storage/v1/b/" + bucket + "/o", RawQuery: query.Encode()}
		upload.RequestURI = upload.URL.String()
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, upload)
		var made stored
		if answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &made) == nil {
			w.Header().Set("ETag", `"`+made.Etag+`"`)
			w.Header().Set("x-goog-generation", made.Generation)
			w.WriteHeader(http.StatusOK)
			return
		}
		http.Error(w, answer.Body.String(), answer.Code)
	})
}

func main() {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: "127.0.0.1", Scheme: "http"})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(os.Args[1], withXML(server.HTTPHandler())))
}
