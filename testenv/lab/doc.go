// Package lab plays scenarios: the whole product, host, client and proxies, in a world whose network moves, loses, stalls
// and sleeps, with apps that verify every byte. A scenario is a text file in scenarios/; docs/testing.md tells its format.
// The same file is played by up to three runners:
//
//   - sim: everything in memory, in a testing/synctest bubble; exact, and hours take milliseconds;
//   - loopback: real TCP on 127.0.0.1 between the real packages, through testenv.Path;
//   - netns: the real program, as processes, over the kernel's TCP between network namespaces; Linux, as root.
//
// `go test ./testenv/lab` plays the short ones and fails on a lost or repeated byte, an app's socket that ended wrongly,
// and a stall over five times its goal. `make lab` plays all and writes docs/lab.md.
package lab
