// The length of each value, with Arrow's library for Go; stdin: arrow, mode: map.
//
//	go mod init lengths && go mod tidy && go build -o lengths
package main

import (
	"bufio"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func main() {
	reader, err := ipc.NewReader(bufio.NewReaderSize(os.Stdin, 1<<20))
	if err != nil {
		log.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "bytes", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	writer := ipc.NewWriter(out, ipc.WithSchema(schema))
	value := reader.Schema().FieldIndices("value")[0]
	for reader.Next() {
		values := reader.RecordBatch().Column(value).(*array.Binary)
		lengths := array.NewInt64Builder(memory.DefaultAllocator)
		for row := 0; row < values.Len(); row++ {
			if values.IsNull(row) {
				lengths.AppendNull()
			} else {
				lengths.Append(int64(values.ValueLen(row)))
			}
		}
		batch := array.NewRecordBatch(schema, []arrow.Array{lengths.NewArray()}, int64(values.Len()))
		if err := writer.Write(batch); err != nil {
			log.Fatal(err)
		}
	}
	if err := reader.Err(); err != nil {
		log.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		log.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
