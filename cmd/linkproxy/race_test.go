//go:build race

package main_test

// raced says that the tests run under the race detector: the program under test then does too.
const raced = true
