package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
)

const (
	// RoleClient and RoleHost say whose proof it is, so that neither can be sent back to the one that made it.
	RoleClient = "client"
	RoleHost   = "host"

	// SecretSize is the size of an invite's secret in bytes: 128 bit, out of reach for guessing on- or offline.
	SecretSize = 16
	maxSecret  = 64

	exporterLabel = "EXPORTER-linkproxy-pair/1"
	exporterSize  = 32
	proofDomain   = "linkproxy-pair/1 proof"
)

// PairingExporter returns the 32 bytes of keying material (RFC 8446, section 7.5) that bind a pairing proof to this
// very TLS connection: somebody in the middle has two connections, and two different values.
func PairingExporter(state tls.ConnectionState) ([]byte, error) {
	out, err := state.ExportKeyingMaterial(exporterLabel, nil, exporterSize)
	if err != nil {
		return nil, fmt.Errorf("identity: exporting keying material: %w", err)
	}
	return out, nil
}

// Proof returns HMAC-SHA-256(secret, role ‖ exporter ‖ clientKey ‖ hostKey), each part led by its length. It
// returns nil, which verifies nowhere, when a part is missing that the proof rests on: a secret of less than 128
// bit, a role that is none, an exporter of the wrong size, a zero key.
func Proof(secret []byte, role string, exporter []byte, clientKey, hostKey Fingerprint) []byte {
	if len(secret) < SecretSize || (role != RoleClient && role != RoleHost) || len(exporter) != exporterSize ||
		clientKey.IsZero() || hostKey.IsZero() {
		return nil
	}
	mac := hmac.New(sha256.New, secret)
	for _, part := range [][]byte{[]byte(proofDomain), []byte(role), exporter, clientKey[:], hostKey[:]} {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// VerifyProof reports in constant time whether proof is what Proof returns for the other arguments.
func VerifyProof(proof, secret []byte, role string, exporter []byte, clientKey, hostKey Fingerprint) bool {
	want := Proof(secret, role, exporter, clientKey, hostKey)
	return want != nil && hmac.Equal(proof, want)
}
