# Needs Go 1.26 and a C compiler; bench-tpch and test-clients say what more
# they need. `make help` lists the targets.

GO      ?= go
SF      ?= 1
FUZZ    ?= 10s
SEED    ?= 1
N       ?= 10000
SECONDS ?= 60
CLIENTS ?= 100
VERSION ?=
LDFLAGS := $(if $(VERSION),-X main.release=$(VERSION))

# Packages with goroutines of their own: `make test RACE=1`, as .ci/run calls it,
# runs their tests with the race detector too.
CONCURRENT := ./consensus/... ./worker/... ./gateway/... ./storage/... ./exec/... ./flightproto/... ./cmd/skein/internal/client/... ./cmd/skein/internal/ops/...

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: run
run: build ## Run Skein on this machine with sample tables, until Ctrl-C
	./bin/skein dev --demo

.PHONY: build
build: ## Build bin/skein
	$(GO) build -ldflags "$(LDFLAGS)" -o bin/skein ./cmd/skein

.PHONY: test
test: ## Run all tests; with RACE=1 those of concurrent packages under the race detector too
	$(GO) test ./...
	$(if $(RACE),CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(CONCURRENT))

.PHONY: test-slt
test-slt: ## Run the SQL suites of cmd/skein/testdata/slt against servers of their own
	$(GO) test ./cmd/skein -run '^TestSLT$$' -count=1

.PHONY: lint
lint: ## Check formatting, vet and staticcheck, of bench too
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	cd bench && $(GO) vet ./...

.PHONY: cluster
cluster: build ## Run three workers and a gateway on this machine, until Ctrl-C
	./examples/cluster/run.sh

.PHONY: bench-tpch
bench-tpch: build ## TPC-H against DuckDB at SF=1; also needs python3 with venv
	cd bench && $(GO) build -o bin/tpch ./cmd/tpch && ./bin/tpch --sf $(SF) --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-cluster
bench-cluster: build ## Three workers against one with TPC-H, joins over exchanges, and 100 clients at once
	cd bench && $(GO) build -o bin/cluster ./cmd/cluster && ./bin/cluster --sf $(SF) --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-soak
bench-soak: build ## CLIENTS=100 read, write, ingest and cancel at once for SECONDS=60, twice; nothing may stay behind
	cd bench && $(GO) build -o bin/cluster ./cmd/cluster && ./bin/cluster --only soak --sf 0.1 --clients $(CLIENTS) --soak $(SECONDS)s --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-rebalance
bench-rebalance: build ## A fourth worker joins three with 24 tablets of TPC-H and is filled while clients ask
	cd bench && $(GO) build -o bin/cluster ./cmd/cluster && ./bin/cluster --rebalance --tablets 4 --clients 4 --sf $(SF) --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-store
bench-store: build ## Ingest, scans, point reads, disk and memory against DuckDB; bench-tpch makes its data
	cd bench && $(GO) build -tags duckdb_arrow -o bin/store ./cmd/store && ./bin/store --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-split
bench-split: build ## The split of a tablet of a million rows while statements run on it
	cd bench && $(GO) build -o bin/split ./cmd/split && ./bin/split --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: bench-diff
bench-diff: build ## N=10000 random queries of SEED=1 on Skein and DuckDB, differences shrunk
	cd bench && $(GO) build -o bin/sqldiff ./cmd/sqldiff && ./bin/sqldiff --skein ../bin/skein --seed $(SEED) --n $(N) $(BENCH_FLAGS)

.PHONY: bench-clients
bench-clients: build ## Loading from Python against Go, 5 M rows; test-clients makes its Python
	cd bench && $(GO) build -o bin/clients ./cmd/clients && ./bin/clients --skein ../bin/skein $(BENCH_FLAGS)

.PHONY: test-clients
test-clients: build ## Run examples/, the programs of docs/clients and ADBC's validation suite against fresh servers; also needs python3 with venv, a JDK, Maven and Node
	./examples/run.sh
	cd bench && $(GO) test ./adbc -count=1 -args -skein $(CURDIR)/bin/skein

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZ=10s
	@set -e; for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; \
	    $(GO) test $$package -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZ); \
	  done; \
	done

.PHONY: fuzz-protocol
fuzz-protocol: ## N=10000 calls with spoilt Flight messages of SEED=1 against a server
	$(GO) test ./cmd/skein -run '^TestProtocol$$' -count=1 -v -timeout 60m -args -protocol.calls=$(N) -protocol.seed=$(SEED)

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf bin .cluster bench/bin bench/.data bench/results examples/.cache examples/java_jdbc/target
