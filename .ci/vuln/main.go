// Command vuln reads govulncheck's JSON from standard input and fails on a finding in a module that is not the standard
// library; findings there are listed, as they go with the Go release a binary is built with (docs/testing.md).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

type message struct {
	Finding *struct {
		OSV   string `json:"osv"`
		Trace []struct {
			Module   string `json:"module"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

func main() {
	found := map[string]string{}
	bad := false
	for d := json.NewDecoder(os.Stdin); ; {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "vuln: reading the report:", err)
			os.Exit(2)
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 {
			continue
		}
		at := m.Finding.Trace[0]
		how := "imported"
		if at.Function != "" {
			how = "called"
		}
		if found[m.Finding.OSV] != "called in "+at.Module {
			found[m.Finding.OSV] = how + " in " + at.Module
		}
		bad = bad || at.Module != "stdlib"
	}
	var ids []string
	for id := range found {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Println(id, found[id])
	}
	if bad {
		fmt.Println("vuln: a module that linkproxy links has a known vulnerability: update it")
		os.Exit(1)
	}
	fmt.Printf("vuln: %d findings, none outside the standard library\n", len(ids))
}
