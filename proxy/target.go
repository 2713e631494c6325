package proxy

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// maxHost is the longest DNS name in text, without the trailing dot (RFC 1035 section 3.1).
const maxHost = 253

// InvalidTargetError says what is wrong with a target an app asked for.
type InvalidTargetError struct{ Target, Problem string }

func (e *InvalidTargetError) Error() string {
	return fmt.Sprintf("proxy: target %q: %s; a target is host:port", e.Target, e.Problem)
}

// Reason makes an invalid name an unknown one.
func (e *InvalidTargetError) Reason() string { return ReasonNotFound }

// checkTarget returns host:port in the one form that dialers see. An empty host would mean this machine to a dialer; a
// name with control bytes or blanks is an attack on whoever logs or parses it next.
func checkTarget(host string, port int) (string, error) {
	bare := host
	if strings.HasPrefix(bare, "[") && strings.HasSuffix(bare, "]") {
		bare = bare[1 : len(bare)-1]
	}
	problem := ""
	switch {
	case bare == "" || bare == ".":
		problem = "the host is empty"
	case len(strings.TrimSuffix(bare, ".")) > maxHost:
		problem = "the host is longer than 253 bytes"
	case strings.ContainsFunc(bare, badHostRune):
		problem = "the host has a character that no name has"
	case port < 1 || port > 65535:
		problem = "the port is not in 1 to 65535"
	case strings.Contains(bare, ":") && !isIPv6(bare):
		problem = "the host has a colon and is no IPv6 address"
	}
	target := net.JoinHostPort(bare, strconv.Itoa(port))
	if problem != "" {
		return "", &InvalidTargetError{Target: target, Problem: problem}
	}
	return target, nil
}

func badHostRune(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`/\@?#[]"<>`, r) || r == '\uFFFD'
}

func isIPv6(s string) bool {
	addr, _, _ := strings.Cut(s, "%")
	ip := net.ParseIP(addr)
	return ip != nil
}

// splitTarget parses the authority of an HTTP request. defaultPort 0: a port is required.
func splitTarget(authority string, defaultPort int) (string, error) {
	host, portText, err := net.SplitHostPort(authority)
	if err != nil {
		if defaultPort == 0 {
			return "", &InvalidTargetError{Target: authority, Problem: "the port is missing"}
		}
		return checkTarget(authority, defaultPort)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		if portText != "" || defaultPort == 0 {
			return "", &InvalidTargetError{Target: authority, Problem: "the port is not in 1 to 65535"}
		}
		port = uint64(defaultPort)
	}
	return checkTarget(host, int(port))
}
