package identity

import "errors"

// Classes of failure, read with errors.Is. The errors that carry them say what was tried and what to do.
var (
	// ErrFormat: the text is no fingerprint or invite at all.
	ErrFormat = errors.New("not in the expected form")
	// ErrTruncated: the end of a fingerprint or invite is missing.
	ErrTruncated = errors.New("incomplete")
	// ErrMistyped: a fingerprint or invite has a wrong, swapped or superfluous character.
	ErrMistyped = errors.New("mistyped")
	// ErrVersion: an invite or file was written by a newer linkproxy.
	ErrVersion = errors.New("made by a newer linkproxy")
	// ErrCorrupt: a file of the state folder cannot be understood.
	ErrCorrupt = errors.New("corrupt file")
	// ErrPermissions: a file or folder is open to other users of this machine.
	ErrPermissions = errors.New("permissions too open")
	// ErrKeyType: a key or certificate is not Ed25519.
	ErrKeyType = errors.New("not an Ed25519 key")
	// ErrNoCertificate: the other side of a TLS connection showed no certificate.
	ErrNoCertificate = errors.New("no certificate")
	// ErrInstanceInUse: another process runs this role from this state folder.
	ErrInstanceInUse = errors.New("already in use")
	// ErrLocked: another process held identity.lock for longer than a change takes.
	ErrLocked = errors.New("state folder is locked")
	// ErrStillTrusted: a client could not be taken off the list, as that could not be written.
	ErrStillTrusted = errors.New("still trusted")
	// ErrNoClient: no trusted client goes by that name or fingerprint.
	ErrNoClient = errors.New("no such client")
	// ErrAmbiguous: several trusted clients go by that name or fingerprint.
	ErrAmbiguous = errors.New("several clients match")
	// ErrNoInvite: no such invite is open: none was made, or it is used up, late, cancelled or ended by wrong guesses.
	ErrNoInvite = errors.New("no such invite is open")
	// ErrWrongSecret: the guess matched no open invite, and counted against each.
	ErrWrongSecret = errors.New("wrong secret")
	// ErrTooManyInvites: MaxOpenInvites are open already.
	ErrTooManyInvites = errors.New("too many open invites")
)
