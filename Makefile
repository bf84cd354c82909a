# holdover: every command a contributor needs. `make` alone prints them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The version comes from git describe below. Go's own stamp would fail in a clone that belongs to another user.
export GOFLAGS := -buildvcs=false $(GOFLAGS)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Packages with concurrency of their own: tested under the race detector, and only so, so that nothing runs twice.
# Statistics and pages have none, and many numbers: NO_RACE.
# wildcard: a checkout without one of them (after the migration mysqlpool stands alone) is tested all the same.
RACE_DIRS := dualwrite legacyredis mysqlpool killswitch rollout compare
NO_RACE := holdover/compare/stats|holdover/compare/report
RACE_PKGS := $(patsubst %,./%/...,$(wildcard $(RACE_DIRS)))

# -p 2: most packages start a MySQL of their own, of about 700 MB.
TEST_FLAGS := -count=1 -timeout 15m -p 2

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: servers bin ## the whole migration on real servers, in about a minute (DEMO_FLAGS="--duration 20s --json")
	bin/holdover demo $(DEMO_FLAGS)

.PHONY: test
test: servers lint ## everything that must pass: formatting, vet, staticcheck, all tests on real servers
	all=$$(go list ./...); race=$$([ -z "$(RACE_PKGS)" ] || go list $(RACE_PKGS) | grep -vxE -- '$(NO_RACE)'); \
	rest=$$(grep -vxF -- "$$race" <<<"$$all"); \
	go test $(TEST_FLAGS) $$rest; \
	[ -z "$$race" ] || go test -race $(TEST_FLAGS) $$race; \
	[ ! -d dualwrite ] || go test $(TEST_FLAGS) -run '^TestMatrix$$' ./dualwrite # thousands of cases: too many for the race detector

.PHONY: test-mariadb
test-mariadb: ## the tests of everything that talks to the database, on MariaDB instead of MySQL; the first line of each names the dialect
	HOLDOVER_DEV_MYSQL=mariadb deploy/dev/install
	HOLDOVER_DEV_MYSQL=mariadb go test -v -count=1 -timeout 20m -p 1 -run 'Test|Example' $(wildcard ./mysqlpool ./mysqlpool/connhold ./legacyredis ./dualwrite ./killswitch ./internal/app ./internal/bench) | grep -vE '^(=== |[ ]*--- PASS|PASS$$)'

.PHONY: lint
lint: ## formatting, vet and staticcheck alone
	files=$$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do [ ! -e "$$f" ] || echo "$$f"; done); \
	unformatted=$$(go tool gofmt -l $$files); \
	if [ -n "$$unformatted" ]; then printf 'not formatted (run: go tool gofmt -w FILE):\n%s\n' "$$unformatted" >&2; exit 1; fi
	go vet ./...
	go tool staticcheck ./...

.PHONY: servers
servers: ## make redis-server and mysqld available; does nothing when they are there
	@deploy/dev/install

.PHONY: browser
browser: ## make a Chromium available, in which the tests then open the report's page (about a minute)
	@deploy/dev/install browser

.PHONY: bin
bin: ## build bin/holdover, linked statically: a kill waits for no dynamic linker
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/holdover ./cmd/holdover

.PHONY: model
model: ## check the handover's model with spin: all configurations, all mutants (MODEL_FLAGS=--short or a name)
	@deploy/dev/install spin
	dualwrite/model/run $(MODEL_FLAGS)

.PHONY: bench
bench: servers ## all Go benchmarks, on real servers
	go test -run '^$$' -bench . -benchmem -timeout 60m -p 1 ./...

.PHONY: clean
clean: ## remove what was built (the servers stay in the user's cache folder)
	rm -rf bin
