package netwatch

import "net/netip"

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, p := range texts {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}
