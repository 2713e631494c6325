// Package identity holds who this machine is and whom it trusts: its Ed25519 key and the key's fingerprint, its
// instance and boot counter, the list of clients a host trusts, and the one-time invites by which a client gets
// onto that list.
//
// # Files
//
// All of them live in one state folder (0700), are written whole (temporary file, fsync, rename) and may be used
// by several processes at once; identity.lock serialises them for the length of one change.
//
//	key.pem            the private key, PKCS#8 PEM, 0600; made on first use, never replaced
//	NAME.instance      instance id and boot counter of one role; NAME.lock is held while that role runs
//	clients.json       the clients a host trusts; clients.json.bak is the same list, to restore from
//	invites.json       invites that are open now, with their secrets, 0600
//
// A broken key or trust list is an error that names the file and the way out: neither is ever replaced or emptied
// silently, since both would cut every pairing or, worse, hide that somebody tampered. A broken instance file
// costs nothing but the memory of earlier boots: it is set aside and made anew, with a warning. Modes are checked
// where the system has them; on Windows the folder's access list, inherited from the user's profile, protects them.
//
// # Cloned state folders
//
// A copied state folder (a cloned virtual machine, a restored backup that runs beside the original) is a known
// risk. Both copies hold the same key, so peers cannot tell them apart, and the same instance id, so the copy with
// the higher boot counter ends the links of the other, which is told that it was superseded. The lock cannot see
// this: it works within one machine. Remedy on the clone: delete NAME.instance, or, to be told apart and revoked
// apart as well, key.pem too, and pair again.
package identity
