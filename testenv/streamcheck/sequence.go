package streamcheck

import (
	"encoding/binary"
	"math/bits"
)

// The bytes of a direction are 64-bit words, little-endian: word i is key + i·step. As step is odd, each word tells its i,
// so that two words found anywhere show from where in the sequence they come; and a foreign sequence, whose key is
// another, shows an i that is out of bounds.
const (
	word = 8
	step = 0x9e3779b97f4a7c15 // 2⁶⁴ / golden ratio: neighbours differ in about every other bit
	// longest is the bound of positions, in bytes.
	longest = 1 << 53
	// markSize is the size of an end mark in bytes: a word that is in no sequence of the key, the total, and both XORed.
	markSize = 3 * word
)

// unstep·step = 1 modulo 2⁶⁴.
const unstep = 0xf1de83e19937733d

// keys returns the keys of both directions of a seed: two outputs of SplitMix64.
func keys(seed uint64) (up, down uint64) {
	mix := func(z uint64) uint64 {
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return mix(seed + step), mix(seed + 2*step&(1<<64-1))
}

func wordAt(key uint64, pos int64) uint64 { return key + uint64(pos)/word*step }

func byteAt(key uint64, pos int64) byte { return byte(wordAt(key, pos) >> (uint64(pos) % word * 8)) }

// where is the position at which w stands in the sequence; false when w is not of it.
func where(key, w uint64) (pos int64, ok bool) {
	i := (w - key) * unstep
	return int64(i * word), i < longest/word
}

// fill sets p to the bytes from pos on.
func fill(p []byte, key uint64, pos int64) {
	for len(p) > 0 && pos%word != 0 {
		p[0] = byteAt(key, pos)
		p, pos = p[1:], pos+1
	}
	w := wordAt(key, pos)
	for len(p) >= word {
		binary.LittleEndian.PutUint64(p, w)
		p, pos, w = p[word:], pos+word, w+step
	}
	for i := range p {
		p[i] = byteAt(key, pos+int64(i))
	}
}

// match is how many of the first bytes of p are those from pos on.
func match(p []byte, key uint64, pos int64) int {
	n := 0
	for ; n < len(p) && (pos+int64(n))%word != 0; n++ {
		if p[n] != byteAt(key, pos+int64(n)) {
			return n
		}
	}
	w := wordAt(key, pos+int64(n))
	for ; len(p)-n >= 4*word; n += 4 * word {
		q := p[n : n+4*word : n+4*word]
		wrong := (binary.LittleEndian.Uint64(q) ^ w) | (binary.LittleEndian.Uint64(q[word:]) ^ (w + step))
		wrong |= binary.LittleEndian.Uint64(q[2*word:]) ^ (w + 2*step&(1<<64-1))
		wrong |= binary.LittleEndian.Uint64(q[3*word:]) ^ (w + 3*step&(1<<64-1))
		if wrong != 0 {
			break
		}
		w += 4 * step & (1<<64 - 1)
	}
	for n < len(p) && p[n] == byteAt(key, pos+int64(n)) {
		n++
	}
	return n
}

// endMark is what follows the last byte of a direction, whose total is a multiple of word.
func endMark(key uint64, total int64) []byte {
	m := binary.LittleEndian.AppendUint64(nil, markWord(key))
	m = binary.LittleEndian.AppendUint64(m, uint64(total))
	return binary.LittleEndian.AppendUint64(m, markWord(key)^uint64(total))
}

// markWord stands at position 2⁶³ of the sequence, which nothing reaches.
func markWord(key uint64) uint64 { return key + step<<60&(1<<64-1) }

// isEndMark says whether p begins with an end mark, and its total.
func isEndMark(p []byte, key uint64) (total int64, ok bool) {
	if len(p) < markSize {
		return 0, false
	}
	t := binary.LittleEndian.Uint64(p[word:])
	ok = binary.LittleEndian.Uint64(p) == markWord(key) && binary.LittleEndian.Uint64(p[2*word:]) == markWord(key)^t
	return int64(t), ok && t < longest && bits.TrailingZeros64(t|word) >= 3
}
