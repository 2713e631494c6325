# Everything a developer does. Only Go and make are needed for build, demo and test.
export CGO_ENABLED ?= 0
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
TAGS     = urfave_cli_no_docs
BIN      = bin/linkproxy$(shell $(GO) env GOEXE)

.PHONY: build demo test race check lint bench lab mutate fuzz cross clean

build:
	$(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/linkproxy

demo: build
	$(BIN) demo

# What emulates networks in real time, and measures in them, runs alone.
ALONE  = ./testenv/netns ./testenv/lab
BESIDE = $$($(GO) list ./... | grep -Ev '/testenv/(netns|lab)$$')
test:
	$(GO) vet ./...
	$(GO) test $(TESTFLAGS) -timeout 9m $(BESIDE)
	$(GO) test $(TESTFLAGS) -timeout 9m -p 1 $(ALONE)

# The race detector needs cgo and a C compiler; it makes everything about eight times slower, so the long random runs are short,
# and what counts on time beside real programs and networks is left out.
race:
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m -skip '^TestProgram' $(BESIDE)

# What must hold before a commit.
check: lint test

lint:
	@test -z "$$($(GO) run mvdan.cc/gofumpt@v0.12.0 -l .)" || { echo "not formatted: $$($(GO) run mvdan.cc/gofumpt@v0.12.0 -l .)"; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: build
	$(GO) run ./testenv/bench -linkproxy $(BIN)

# Every scenario in every world that can run here, and a report with pictures; make lab SCENARIO=train plays one.
LAB = $(if $(SCENARIO),-v -lab.scenario=$(SCENARIO) -lab.report=$(CURDIR)/bin/lab/$(SCENARIO).md,-lab.all -lab.report=$(CURDIR)/docs/lab.md)
lab:
	$(GO) test -count=1 -timeout 90m -run 'TestSim|TestLoopback|TestNetNS' ./testenv/lab $(LAB)

# Known faults planted in a copy, one at a time: which test finds each? make mutate SAMPLE=6: six of them; FAULT=FIN: those that match.
mutate:
	$(GO) run ./testenv/mutate $(if $(SAMPLE),-sample $(SAMPLE)) $(if $(FAULT),-only '$(FAULT)')

# Each fuzzer for FUZZTIME; all of them, one after the other.
FUZZTIME ?= 10s
fuzz:
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg || exit 1; \
	  done; \
	done

# The systems a release is built for.
cross:
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
	  echo "$$os/$$arch"; GOOS=$$os GOARCH=$$arch $(GO) build -trimpath -tags $(TAGS) -o /dev/null ./cmd/linkproxy || exit 1; \
	done; done

clean:
	rm -rf bin
