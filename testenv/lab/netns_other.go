//go:build !linux

package lab

import (
	"context"

	"linkproxy/testenv/netns"
)

func newProduct(context.Context, *Scenario, string, string) (World, error) {
	return nil, netns.Supported()
}

func newBaseline(context.Context, *Scenario, string, string) (World, error) {
	return nil, netns.Supported()
}
