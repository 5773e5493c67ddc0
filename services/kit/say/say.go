// Package say holds what Weft tells a person when something went wrong: what
// happened, why, and what to do next. A Problem is an error like any other, so
// it can be wrapped and returned; only the top of a program prints it. The
// words in What, Why and Next are for people who have never read this code:
// they name flags, files and ports, never types or functions.
package say

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Problem is an error in words for a person.
type Problem struct {
	// Code below 100 is the code the program should exit with; from 100 on it is
	// a stable number by which documentation names the problem. 0 is neither.
	Code int
	What string // what is wrong, as a sentence without a stop
	Why  string // the cause, as far as it is known
	Next string // the command or change to try
	Err  error  // the underlying error; shown only when detail is asked for
}

// Error is the problem on one line, for logs.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.What)
	if p.Why != "" {
		b.WriteString(": " + p.Why)
	}
	if p.Next != "" {
		b.WriteString(" (next: " + p.Next + ")")
	}
	return b.String()
}

// Exit is the code a program that ends because of the problem should exit with.
func (p *Problem) Exit() int {
	if p.Code > 0 && p.Code < firstNumber {
		return p.Code
	}
	return 1
}

// firstNumber is where codes begin to be numbers of problems.
const firstNumber = 100

// Unwrap returns the underlying error.
func (p *Problem) Unwrap() error { return p.Err }

// Detail says how much Print writes.
type Detail int

const (
	// Plain prints what, why and next.
	Plain Detail = iota
	// Verbose also prints the underlying error.
	Verbose
)

// Print writes err for a person who ran the program called who. Any error can
// be printed; one that holds a Problem is laid out in its three parts, after
// the acts (if any) that wrap it.
func Print(w io.Writer, who string, err error, detail Detail) {
	if err == nil {
		return
	}
	var p *Problem
	if !errors.As(err, &p) {
		fmt.Fprintf(w, "%s: %s\n", who, err)
		return
	}
	code := ""
	if p.Code >= firstNumber {
		code = fmt.Sprintf(" [W%04d]", p.Code)
	}
	fmt.Fprintf(w, "%s: %s%s\n", who, p.What, code)
	part(w, "why", p.Why)
	part(w, "next", p.Next)
	if detail == Verbose {
		if p.Err != nil {
			part(w, "cause", p.Err.Error())
		}
		if whole := err.Error(); whole != p.Error() {
			part(w, "while", whole)
		}
	}
}

// part writes one labelled paragraph; its further lines align with the first.
func part(w io.Writer, label, text string) {
	if text == "" {
		return
	}
	text = strings.ReplaceAll(text, "\n", "\n         ")
	fmt.Fprintf(w, "  %-6s %s\n", label+":", text)
}
