# ndklab's targets. `make` alone lists them.

GO      ?= go
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Of the commit, not of the build: the same commit gives the same bytes.
DATE    := $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo unknown)
# A static binary: the same file is command line, supervisor, engine and agent.
export CGO_ENABLED = 0
# The values that property tests draw: the same in every run. 0: others each time.
export RAPID_SEED ?= 1
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
BUILD    = $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

.PHONY: help check build verbs verbs-lib dist dist-check page demo test judges test-chaos differential congestion slurm kubernetes conformance race sim sim-links interop systems arm64 baseline bench bench-fabric bench-scale bench-verbs benchmarks lint audit fuzz clean go

help:  ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

go:
	@command -v $(GO) >/dev/null || { \
	  echo 'make: the command "$(GO)" is missing: install Go 1.26 or later (https://go.dev/dl, or the package golang-go) and put it on PATH' >&2; exit 1; }

build: go  ## bin/ndklab, and bin/ndklab-monitor, which `ndklab metrics` and `ndklab ui` need beside it
	@$(BUILD) -o bin/ ./cmd/...

# Where the libraries go, and how C is compiled: the tests ask for another place and for sanitizers.
VERBS_OUT    ?= bin/verbs
VERBS_CFLAGS ?= -O2 -Wl,-z,defs
# The engine's library is in processes of others: without asyncpreemptoff the Go runtime sends signals to their threads.
verbs: private LDFLAGS += -X runtime.godebugDefault=asyncpreemptoff=1
verbs: go verbs-lib  ## bin/verbs, the libraries with which RDMA programs find a node's adapter (needs a C compiler)
	@CGO_ENABLED=1 $(BUILD) -buildmode=c-shared -o $(VERBS_OUT)/libndklab-rnic.so ./verbs/engine
	@rm -f $(VERBS_OUT)/libndklab-rnic.h

verbs-lib:
	@command -v $(CC) >/dev/null || { \
	  echo 'make: the C compiler "$(CC)" is missing: install one (the packages gcc and libc6-dev), or set CC' >&2; exit 1; }
	@mkdir -p $(VERBS_OUT)/build
	@awk -f verbs/lib/symbols.awk -v make=map verbs/lib/symbols >$(VERBS_OUT)/build/symbols.map
	@awk -f verbs/lib/symbols.awk -v make=header verbs/lib/symbols >$(VERBS_OUT)/build/exports.h
	@# libdl and libpthread by name: they are parts of libc since glibc 2.34, and not before.
	@$(CC) -std=gnu11 -fPIC -Wall -Wextra -Werror -Wmissing-prototypes $(VERBS_CFLAGS) \
	  -I$(VERBS_OUT)/build -shared -Wl,-soname,libibverbs.so.1 -Wl,--version-script=$(VERBS_OUT)/build/symbols.map \
	  -Wl,-z,now -Wl,-z,nodelete -o $(VERBS_OUT)/libibverbs.so.1 verbs/lib/*.c \
	  -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0
	@$(CC) -std=gnu11 -Wall -Wextra -Werror -Wmissing-prototypes $(VERBS_CFLAGS) -o $(VERBS_OUT)/ndklab-rnic verbs/rnic/*.c verbs/lib/room.c \
	  -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0

# Programs for both architectures, and the libraries of verbs for amd64; the program release makes the rest of them.
DIST := $(abspath dist)
dist: go  ## dist, what a release has: archives, .deb, .rpm, images, manual pages, licences, a bill of materials, checksums (on amd64, with a C compiler)
	@[ "$$($(GO) env GOHOSTARCH)" = amd64 ] || { echo 'make: dist builds the libraries of verbs for amd64, and is made on such a machine' >&2; exit 1; }
	@rm -rf $(DIST) bin/dist && mkdir -p $(DIST)
	@for arch in amd64 arm64; do GOARCH=$$arch $(BUILD) -o bin/dist/linux_$$arch/ ./cmd/... || exit; done
	@$(MAKE) --no-print-directory verbs VERBS_OUT=bin/dist/linux_amd64/verbs
	@rm -r bin/dist/linux_amd64/verbs/build
	@cd release && $(GO) run -trimpath -buildvcs=false . -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)' -programs ../bin/dist -out $(DIST)

dist-check: go  ## the tests of release: two clones of this commit, in two folders, give the same files, and the commands of the workflow for a tag publish them (15 minutes)
	cd release && $(GO) vet . && NDKLAB_LONG=1 $(GO) test -count=1 -timeout 60m -v .

page:  ## the page of `ndklab ui`, from its sources (Node.js and npm): what it makes is committed, and `make build` needs neither
	@command -v npm >/dev/null || { \
	  echo 'make: the command npm is missing: install Node.js 20 or later (the packages nodejs and npm), and put it on PATH' >&2; exit 1; }
	@cd internal/fabric/ui/page && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm run --silent build

demo: build  ## runs the example lab: two nodes, an impaired link, verified RDMA
	@bin/ndklab run examples/pair.ndklab.yaml

# What decides: packets, queue pairs, connections, links, switches, topologies, labs.
CHECKED := $(addprefix ./internal/provider/,cm congestion gsi pace rc roce transport uc ud) ./provider ./topology ./internal/topology/... ./internal/control \
  ./internal/fabric/core ./internal/fabric/impair ./internal/fabric/mmu ./internal/fabric/scenario
# Of each property, for which `make test` draws 100 values.
check: export RAPID_CHECKS = 20
check: build  ## in half a minute: the tests of what decides, and the example lab, in virtual time where no lab can run
	@$(GO) test -timeout 5m $(CHECKED)
	@if bin/ndklab doctor >/dev/null; then bin/ndklab demo; else bin/ndklab demo --simulate; fi

test: build  ## all tests but the long ones, as `go test ./...` (NDKLAB_LONG=1: those, too); it says beforehand what it skips, and why
	@$(GO) run -trimpath ./internal/need/forecast
	$(GO) test -timeout 25m ./...

# Tests that take long are skipped (need.Time) unless this is set.
judges test-chaos differential race congestion slurm kubernetes: export NDKLAB_LONG = 1

judges: go  ## programs for RDMA that nobody here wrote, in nodes: those that are installed, or all with NDKLAB_REQUIRED=1 (ONLY=UCX: tests of that name; ALL=1: longer tables)
	$(if $(ALL),NDKLAB_PROGRAMS=all) $(GO) test -count=1 -timeout 60m -v $(if $(ONLY),-run '$(ONLY)') ./internal/fabric/programs
	$(if $(ONLY),,$(GO) test -count=1 -timeout 20m -v -run '^TestPrograms$$' ./examples)
	$(if $(ONLY),,$(GO) test -count=1 -timeout 20m ./internal/node ./verbs/...)

slurm: go  ## labs over the hosts of a real Slurm, or by a real sshd, in namespaces of this machine, and all that may befall them (root; Debian: slurmctld slurmd slurm-client munge openssh-server)
	$(GO) test -p 1 -count=1 -timeout 20m -v -run '^Test(Slurm|SSHD|HostFaults)$$' ./internal/hosts ./examples ./internal/fabric/lab/chaos

KUBERNETES ?= bin/kubernetes
kubernetes: go  ## Jobs on a real Kubernetes, whose hosts are those of `make slurm`, and what befalls their pods (root; Debian, beside Slurm: etcd-server containerd runc containernetworking-plugins openssl; the first time it builds Kubernetes, in 7 minutes, into KUBERNETES)
	@internal/hosts/testdata/kubernetes/build.sh '$(KUBERNETES)'
	NDKLAB_TEST_KUBERNETES='$(abspath $(KUBERNETES))' $(GO) test -count=1 -timeout 20m -v -run '^TestKubernetes$$' ./internal/hosts/manifest

TRIALS ?= 200
SEED ?= 1
test-chaos: go  ## TRIALS (default 200) of labs that are killed, interrupted, starved: nothing is left (SEED=n, TRIAL=n alone, ONLY=kill: faults of that name, DURING=run: at that time)
	$(GO) test -count=1 -timeout 60m -v ./internal/fabric/lab/chaos -args -trials $(TRIALS) -seed $(SEED) $(if $(TRIAL),-trial $(TRIAL)) $(if $(ONLY),-only '$(ONLY)') $(if $(DURING),-during '$(DURING)')

differential: TRIALS = 25
differential: go  ## TRIALS (default 25) of random topologies, run in a simulation and as a lab: they agree (SEED=n: the first)
	NDKLAB_REQUIRED=1 $(GO) test -count=1 -timeout 60m -v ./internal/fabric/differential -args -trials $(TRIALS) -seed $(SEED)

congestion: go  ## congestion of simulated fabrics against published figures: each row with reference, ours and verdict
	@echo '| row | what | reference | ours | verdict |'; echo '|---|---|---|---|---|'
	@bash -o pipefail -c '$(GO) test -count=1 -timeout 20m -v ./internal/fabric/acceptance | sed -nE "s/^ +[a-z_]+\.go:[0-9]+: (\| .*)/\1/p; /^(---|FAIL|ok|panic)/p"'

conformance: go  ## every rule of docs/spec/ndkpi.md has a passing test (RULES=--all for the advisory ones too)
	@bash -o pipefail -c '$(GO) test -timeout 9m -json ./provider/... ./internal/provider/... | docs/spec/ndk-rules $(RULES)'

race: go  ## the tests of what runs on many goroutines, under the race detector (needs a C compiler)
	@# A race-enabled process sleeps for a second when it ends, unless told otherwise:
	@# tests of what ends when would see that. What runs for an ordinary user is the same code.
	GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test -race -timeout 40m -skip '^TestAsOrdinaryUser$$' ./internal/control/... ./internal/hosts ./provider/... ./internal/provider/... ./internal/node/... ./fabric/... ./internal/fabric/...

SEEDS ?= 20000
FIRST ?= 1
sim: go  ## SEEDS random scenarios of NDKPI (default 20000, seed FIRST to begin with) and a quarter as many of verbs, on a simulated network with all faults, and as many lives of labs
	@case '$(SEEDS) $(FIRST)' in *[!0-9\ ]*|\ *|*\ ) echo 'make: SEEDS and FIRST are numbers, as in: make sim SEEDS=20000 FIRST=1' >&2; exit 1;; esac
	$(GO) test -count=1 -timeout 60m -v -run '^TestSeeds$$' ./internal/provider/sim/soak -seeds $(SEEDS) -first $(FIRST)
	$(GO) test -count=1 -timeout 60m -v -run '^TestSeeds$$' ./internal/provider/sim/verbsoak -seeds $$((($(SEEDS)+3)/4)) -first $(FIRST)
	$(GO) test -count=1 -timeout 60m -run '^TestSeeds$$' ./internal/fabric/core -seeds $$((($(SEEDS)+3)/4)) -first $(FIRST)

baseline: build  ## the figures of examples/suite in virtual time, which tests hold it to, into examples/suite/baseline.json
	@bin/ndklab run examples/suite --simulate --write-baseline examples/suite/baseline.json

LINKS ?= 10000
sim-links: go  ## LINKS random links without loss (default 10000, seed FIRST to begin with), on which nothing may be sent again
	@case '$(LINKS) $(FIRST)' in *[!0-9\ ]*|\ *|*\ ) echo 'make: LINKS and FIRST are numbers, as in: make sim-links LINKS=10000 FIRST=1' >&2; exit 1;; esac
	$(GO) test -count=1 -timeout 60m -v -run '^TestCleanLinks$$' ./internal/fabric/simulate -links $(LINKS) -first $(FIRST)

interop: verbs  ## labs with a Linux kernel's soft-RoCE in a virtual machine as a foreign node (Debian; fetches packages; QEMU; a C compiler; SHORT=1: less of it)
	@internal/fabric/interop/rxeguest/setup
	NDKLAB_INTEROP=1 NDKLAB_LIBRARIES=$(abspath $(VERBS_OUT)) $(GO) test $(if $(SHORT),-short) -timeout 60m -count=1 -v ./internal/fabric/interop

systems: build  ## bin/ndklab on the kernels of Debian 11 to 14 and Ubuntu 24.04 in virtual machines, as root and as an ordinary user (Debian; fetches packages; QEMU)
	@internal/fabric/interop/rxeguest/systems bin/ndklab

# qemu-user emulates the processor alone, and translates system calls. It does not know the packet filters of adapters
# on sockets (TestCounters), nor can a program start itself: what needs these is left out, and internal/control, which
# passes files by sockets and does not end there.
EMULATED := $(filter-out ./internal/control,$(CHECKED)) ./internal/histogram ./internal/provider/sim ./internal/fabric/linkreport ./internal/fabric/report/... ./internal/fabric/simulate
QEMU     ?= $(firstword $(wildcard /usr/bin/qemu-aarch64-static /usr/bin/qemu-aarch64) qemu-aarch64)
arm64: export RAPID_CHECKS = 20
arm64: go  ## ndklab for arm64: on the kernels of Debian 11 to 14 in virtual machines, as `make systems`; the tests of what decides, and examples/suite in virtual time to the same figures (Debian; fetches packages; QEMU: the package qemu-user; 20 minutes)
	@command -v $(QEMU) >/dev/null || { echo 'make: the command $(QEMU) is missing: install it (the package qemu-user), or set QEMU' >&2; exit 1; }
	@GOARCH=arm64 $(BUILD) -o bin/arm64/ ./cmd/ndklab
	@$(QEMU) bin/arm64/ndklab demo --simulate
	@$(QEMU) bin/arm64/ndklab run examples/suite --simulate --baseline examples/suite/baseline.json
	@RXE_GUEST_ARCH=arm64 internal/fabric/interop/rxeguest/systems bin/arm64/ndklab
	@GOARCH=arm64 $(GO) test -exec $(QEMU) -timeout 15m -skip '^TestCounters$$' $(EMULATED)

ROUNDS ?= 5
bench: go  ## the data path against the kernel's floor and against UCX, libfabric, sockperf and iperf3, into bench/results.json (as root; ROUNDS=n; ONLY=regular expression of figures: those, into bin/bench.json)
	@$(BUILD) -o bin/bench-datapath ./bench/datapath
	@bin/bench-datapath -rounds '$(ROUNDS)' $(if $(ONLY),-only '$(ONLY)' -json bin/bench.json,-json bench/results.json)

bench-fabric: go  ## what links do against what they promise, into bin/fabric.json (SHORT=1: less of it, with limits for a busy machine; ONLY=delay,loss: some of it; GUEST=1: netem and linkem in a virtual machine)
	@$(BUILD) -o bin/bench-fabric ./bench/fabric
	@$(if $(GUEST),bench/fabric/guest,bin/bench-fabric) -json bin/fabric.json $(if $(SHORT),-short) $(if $(ONLY),-only $(ONLY))

bench-scale: go  ## labs of 10 to 2,000 nodes: up, down, memory and processor time per node, and 1,000 nodes exchanging messages, into bin/scale.json
	@$(BUILD) -o bin/bench-scale ./bench/scale
	@bin/bench-scale -json bin/scale.json $(if $(NODES),-nodes $(NODES))

benchmarks: go  ## each of Go's benchmarks once, so that none is broken when it is needed
	$(GO) test -timeout 20m -run '^$$' -bench . -benchtime 1x ./...

bench-verbs: build verbs  ## perftest and UCX between two nodes, against their limits and against TCP, into bin/verbs.json (ROUNDS=n; SHORT=1: one, with limits for a busy machine; ONLY=regular expression of figures)
	@$(BUILD) -o bin/bench-verbs ./bench/verbs
	@bin/bench-verbs -json bin/verbs.json -rounds '$(ROUNDS)' $(if $(SHORT),-short) $(if $(ONLY),-only '$(ONLY)')

lint: go  ## formatting, files that do not belong here, vet, staticcheck, the purity of the protocol core, and sentences of comments that read backwards
	@test -z "$$(git ls-files -ci --exclude-standard)" || { echo 'make: committed, though .gitignore names them:' $$(git ls-files -ci --exclude-standard) >&2; exit 1; }
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) run ./lint/purelint ./...

audit: go  ## the modules that programs are made of: go.sum, known vulnerabilities or else newer versions (fetches from the module proxy and vuln.go.dev)
	@GO='$(GO)' .ci/audit

FUZZTIME ?= 30s
fuzz: go  ## every fuzzer for FUZZTIME each (default 30s)
	@GO='$(GO)' .ci/fuzz $(FUZZTIME)

clean:  ## removes bin
	rm -rf bin
