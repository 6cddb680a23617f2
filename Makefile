# make check, test and test-short are what a change must pass (.ci/run): linters, the tests that need
# no server, the short ones that do. make nightly is all the rest; each of its parts is a target here.
# make test: the root module, mostly in virtual time. Three minutes on two cores. Needs Go and nothing else.
# make test-short: the other modules' tests, without those that wait for the wall clock.
# make test-stores: everything on real servers, the routers, the command and the examples;
# STORE=x for one store. What a test needs it installs where it can, and a test that cannot
# run says so by name.
# make mutants: broken versions of the code, each of which a named test must catch.
# make chaos: real clusters whose servers, disks, links and clocks fail (see internal/test/apart/chaos).
# make models: the model of package shard, in all its states (see internal/test/sim/models).
# make explore: the code that decides, in all its states within bounds (docs/reliability.md); EXPLORE=1m is the time for each scope.
# make soak: many more seeds of the simulation, and the command's promise again and again.
# make bench: what the library itself costs (internal/test/apart/bench/README.md).
# make lint: golangci-lint, which is built first. make oldest: with the oldest Go.
# make packages: archives, .deb, .rpm, image and chart, made and tried; as root.
# make fuzz, make vuln, make snapshot: what CI does once a night or a week.

GO     ?= go
TESTFLAGS ?=
# How many packages that watch servers are tested at once. They mostly wait; on a
# machine that has other things to do, P=1 disturbs them least.
P      ?= 3
NPM_DIR = internal/test/stores/npm
# The modules that go.work does not bind: servers that tests start, and tools, each with
# versions of its own.
NESTED  = $(patsubst %/go.mod,%,$(wildcard internal/test/stores/servers/go.mod internal/test/stores/servers/*/go.mod))
ALONE   = GOWORK=off $(GO)

.PHONY: leaderelect test test-short test-stores test-modules test-store test-cost test-nested chaos models mutants check fmt vet staticcheck tidy mod consume bench soak fuzz vuln lint oldest npm

# SHORT= also runs the tests that make nightly is for.
SHORT   ?= -short
GOTEST  ?= $(GO) test
# SIM is how many seeds each of the simulation's runs takes here; make soak takes more.
SIM     ?= 150
# Packages of the root whose tests start servers.
SERVERS = ./internal/test/stores ./deciders/consul
# make mutants runs them, alone.
UNBROKEN = -skip '^TestMutants$$'
test:
	$(GOTEST) $(SHORT) $(UNBROKEN) -race -p 2 -timeout 1h $(TESTFLAGS) $$($(GO) list ./... | grep -vxF "$$($(GO) list ./internal/test/sim $(SERVERS))")
	$(GOTEST) $(SHORT) -race -timeout 10m $(TESTFLAGS) ./internal/test/sim -seeds $(SIM)

# What fails here is run once more, alone, since servers go by the wall clock. It is named in bin/rerun.short
# even if it passes then. Nothing with a data race is run again, nor anything if more than five fail. make test has no
# such mercy.
RERUN = --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test --rerun-fails-report=bin/rerun.short
test-short: npm bin/gotestsum
	bin/gotestsum --format pkgname $(RERUN) --packages "$$({ $(GO) list $(SERVERS); $(OTHERS) | grep -vE '/(bench|chaos)$$'; } | tr '\n' ' ')" -- -short -race -p $(P) -timeout 10m $(TESTFLAGS)
OTHERS = $(GO) list work | grep -vxF "$$($(GO) list ./...)"

.PHONY: bin/gotestsum
bin/gotestsum:
	$(ALONE) -C .ci/tools build -o ../../bin/gotestsum gotest.tools/gotestsum

# The command's real processes come last and by themselves: they go by the clock.
STORE   ?=
ifeq ($(STORE),)
test-stores: npm test-modules test-command test-cost test-nested
else
test-stores: npm test-store
endif

# kube-apiserver and Consul take minutes to build from nothing. Here no test's time runs yet.
.PHONY: kube consul
kube consul:
	cd internal/test/stores/servers/$@ && $(ALONE) run . -h 2>/dev/null

test-short test-modules test-store: export GORACE = suppressions=$(CURDIR)/internal/test/stores/race.suppressions
test-modules: npm kube consul
	$(GOTEST) $(UNBROKEN) -race -p $(P) -timeout 20m $(TESTFLAGS) $(SERVERS) $$($(OTHERS) | grep -v /cmd/)

.PHONY: test-command
test-command: npm kube consul
	$(GOTEST) -race -p 1 -timeout 20m $(TESTFLAGS) ./cmd/leaderelect/...

# What belongs to a store's decider, and is elsewhere: tests that are in a module of their own.
WITH_hinted   = ./internal/test/apart/hinted
WITH_natskv   = ./internal/test/apart/natskv
WITH_postgres = ./internal/test/apart/fencesql
WITH_sql      = ./internal/test/apart/fencesql
test-store: $(if $(filter kubernetes,$(STORE)),kube) $(filter consul,$(STORE))
	@[ -d deciders/$(STORE) ] || { echo "there is no store $(STORE): STORE is the name of a directory of deciders"; exit 1; }
	$(GOTEST) -race -p $(P) -timeout 20m $(TESTFLAGS) ./deciders/$(STORE)/... $(patsubst %/go.mod,./%/...,$(wildcard deciders/$(STORE)/*/go.mod)) $(WITH_$(STORE))

# Each store's servers for MINUTES, CHAOS_P stores at a time, as root; and one run that must
# find what is broken on purpose.
MINUTES ?= 2
CHAOS   ?= etcd nats zookeeper redis postgres mariadb kubernetes consul
CHAOS_P ?= 8
chaos: kube consul
	$(GO) test -count=1 -tags chaos -timeout 5m ./internal/test/apart/chaos
	$(GO) build -o bin/chaos ./internal/test/apart/chaos
	bin/chaos build bin/chaos.programs
	@printf '%s\n' $(CHAOS) | xargs -P $(CHAOS_P) -I STORE sh -c 'bin/chaos -programs bin/chaos.programs -store STORE -minutes $(MINUTES) >bin/chaos.STORE 2>&1; rc=$$?; cat bin/chaos.STORE; exit $$rc'
	bin/chaos -programs bin/chaos.programs -store etcd -unconditional -overlap -minutes 2

# The protocol's model, and its mutants: needs spin and gcc, and a minute or two of one core.
models:
	$(GO) test -count=1 -tags models -timeout 30m $(TESTFLAGS) ./internal/test/sim/models

# All states of the pure machine, within bounds: each scope has so long, unless it ends before. Other targets must not
# see it: make exports what its command line sets.
EXPLORE ?= 30m
unexport EXPLORE
.PHONY: explore
explore:
	EXPLORE=$(EXPLORE) $(GO) test -count=1 -timeout 0 -v -run '^TestExplore$$' $(TESTFLAGS) .

# Each builds the package anew, so the race detector would cost more than it tells.
mutants:
	$(GOTEST) -timeout 2h -run '^TestMutants$$' $(TESTFLAGS) ./internal/test/rules ./internal/test/explore/mutate ./shard ./lifeline

# How often the command wakes up, and what a group asks of its store: without the race detector.
test-cost:
	$(GOTEST) -run 'Sleeps|^TestStart$$' $(TESTFLAGS) ./cmd/leaderelect
	$(GOTEST) -run '^TestCost$$' $(TESTFLAGS) ./shard

test-nested:
	@set -e; for m in $(NESTED); do echo "== $$m"; \
		tested=$$(cd $$m && $(ALONE) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); \
		[ -z "$$tested" ] || (cd $$m && $(ALONE) test -race -timeout 20m $(TESTFLAGS) $$tested); done

# The emulators that come from npm. Without npm their tests skip, by name.
npm:
	@if command -v npm >/dev/null; then \
		if [ ! -d $(NPM_DIR)/node_modules ] || [ $(NPM_DIR)/package-lock.json -nt $(NPM_DIR)/node_modules ]; then \
			cd $(NPM_DIR) && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules; fi; \
	else echo "npm is not installed: the tests on Azurite and dynalite will be skipped, by name"; fi

check: fmt vet staticcheck tidy

fmt:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not gofmt'd:"; echo "$$out"; exit 1; fi

# With -race, so that what vet compiles is what the tests link, and nothing is compiled twice.
# The core is vetted for other systems, too.
vet:
	$(GO) vet -race work
	$(GO) vet -race -tags packages ./deploy/helm
	GOARCH=386 $(GO) vet $(ELSEWHERE)
	GOOS=darwin $(GO) vet $(ELSEWHERE)
	GOOS=windows $(GO) vet $(ELSEWHERE)
ELSEWHERE = . ./clocks/... ./deciders/memory ./deciders/file/...

# Every SDK is compiled anew for each system, and every test server: a quarter of an hour.
.PHONY: vet-all
vet-all: vet
	GOARCH=386 $(GO) vet $$($(GO) list work | grep -vE '/(adapters/(gocron|kubernetes)|bench|migrate)(/|$$)')
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...
	GOOS=darwin $(GO) vet ./examples/... ./cmd/leaderelect/...
	GOOS=windows $(GO) vet ./examples/... ./cmd/leaderelect/...
	@set -e; for m in .ci/tools $(NESTED); do echo "$(ALONE) -C $$m vet ./..."; $(ALONE) -C $$m vet ./...; done

staticcheck:
	$(ALONE) -C .ci/tools build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	GOFLAGS='$(shell $(GO) env GOFLAGS) -race' bin/staticcheck work

# golangci-lint is built by itself: as a tool of .ci/tools/go.mod its two hundred dependencies would
# set the versions there. It takes minutes once, and so is not part of make check.
GOLANGCI = v2.15.0
lint: bin/golangci-lint-$(GOLANGCI)
	bin/golangci-lint-$(GOLANGCI) run --config .ci/golangci.yml $$($(GO) list -m -f '{{.Dir}}/...')

bin/golangci-lint-$(GOLANGCI):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv bin/golangci-lint $@

# For the oldest Go that its go.mod allows: the root module, which must need no other. go.work is for a newer Go.
oldest:
	$(ALONE) vet ./...

# The last release's modules build on this root. A program that updates the root alone has both, and they use the
# root's internal packages.
.PHONY: earlier
earlier:
	@tag=$$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD~1 2>/dev/null) || { echo "nothing is released yet: no earlier modules"; exit 0; }; set -e; \
	rm -rf bin/earlier && mkdir -p bin/earlier && git archive "$$tag" | tar -x -C bin/earlier; cd bin/earlier; \
	sed -i 's,^\t\.$$,\t../..,' go.work; $(GO) work edit -replace=github.com/c8e606e4/leaderelection@$$tag=../..; \
	echo "the modules of $$tag on this root"; \
	GOWORK=$$PWD/go.work $(GO) build $$(GOWORK=$$PWD/go.work $(GO) list -m -f '{{.Dir}}/...' | grep "^$$PWD/" | grep -vE "^$$PWD/(examples|internal)/"); \
	cd ../.. && rm -rf bin/earlier

# go mod tidy must find nothing to do, in every module; make mod does what it finds. It does not look at go.work, so
# each go.mod replaces the modules of this repository that it requires. A go.sum in another order it leaves, and shows.
MODULES = git ls-files '*go.mod' | sed 's,go.mod$$,.,'
tidy:
	@rc=0; for m in $$($(MODULES)); do (cd $$m && $(ALONE) mod tidy -diff) || { echo "$$m is not tidy: run make mod"; rc=1; }; done; exit $$rc
mod:
	@set -e; for m in $$($(MODULES)); do (cd $$m && $(ALONE) mod tidy && { $(ALONE) mod tidy -diff || true; } | patch -s -p1); done

# All that is too long for each change on one machine, past failures, with a table at the end.
.PHONY: nightly
nightly:
	.ci/nightly

# The command line as it is released, in bin/: no symbols, no paths of this machine, and of
# gRPC in Google's storage client only what it cannot do without. LEAVE_OUT="no_gcs no_s3"
# leaves stores out; VERSION is what leaderelect --version says.
LEAVE_OUT ?=
VERSION   ?=
leaderelect:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w$(if $(VERSION), -X github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/cli.version=$(VERSION))" \
		-tags "disable_grpc_modules $(LEAVE_OUT)" -o bin/leaderelect ./cmd/leaderelect

# For packages, in bin/share: manual pages and completions, which it writes itself, and the licenses
# of all that is linked into it on some system, which ask to go with it. The packages'
# changelog only says where CHANGELOG.md is.
MAINTAINER = $(shell sed -nE 's/^ +maintainer: //p' deploy/goreleaser.yaml)
.PHONY: share
share: leaderelect
	rm -rf bin/share
	mkdir -p bin/share/completions
	bin/leaderelect man bin/share/man/man1
	gzip -n9 bin/share/man/man1/*
	bin/leaderelect completion bash >bin/share/completions/leaderelect.bash
	bin/leaderelect completion fish >bin/share/completions/leaderelect.fish
	bin/leaderelect completion zsh >bin/share/completions/_leaderelect
	{ echo "== Go's standard library"; cat "$$($(GO) env GOROOT)/LICENSE"; for os in darwin linux windows; do \
		GOOS=$$os CGO_ENABLED=0 $(GO) list -deps -tags disable_grpc_modules -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/leaderelect; \
		done | sort -u | while read -r path version dir; do printf '\n== %s %s\n' $$path $$version; \
		texts=$$(find $$dir -maxdepth 1 -type f | sort | grep -iE '/(licen[sc]e|copying|notice|patents)[^/]*$$') || { echo "$$dir has no license" >&2; exit 1; }; cat $$texts; \
		done; } >bin/share/third-party-notices.txt
	gzip -n9 bin/share/third-party-notices.txt
	git log -1 --format='[{semver: $(VERSION:v%=%), date: "%cI", packager: $(MAINTAINER), deb: {distributions: [unstable], urgency: medium}, changes: [{note: "See https://github.com/c8e606e4/leaderelection/blob/main/CHANGELOG.md"}]}]' >bin/share/changelog.yaml

# Archives, .deb, .rpm, checksums and bills of materials, in bin/dist, as a release has them
# (deploy/goreleaser.yaml). make snapshot: for every system and processor. The newest goreleaser
# that the module proxy has all parts of; it is built by itself, as golangci-lint is.
GORELEASER = v2.15.1
KO         = v0.18.1
CRANE      = v0.21.3
CYCLONEDX  = v1.10.0
# goreleaser goes by git only where there is a remote, which a checkout in CI may not have.
MAKE_DIST  = PATH="$(CURDIR)/bin:$$PATH" GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/c8e606e4/leaderelection \
	$(CURDIR)/bin/goreleaser-$(GORELEASER) release --config deploy/goreleaser.yaml --clean --parallelism 2
.PHONY: snapshot cloned
snapshot: cloned bin/goreleaser-$(GORELEASER) bin/cyclonedx-gomod-$(CYCLONEDX)
	$(MAKE_DIST) --snapshot

# In a linked worktree go finds no commit, and the programs would not say of which they are.
cloned:
	@[ -d .git ] || { echo "go finds no commit in a linked worktree, such as this: git clone . DIR, and make it there"; exit 1; }

# What the job build of release.yml does at a tag, and what it needs. It has not been run: nothing is released yet.
.PHONY: release
release: cloned bin/goreleaser-$(GORELEASER) bin/ko-$(KO) bin/crane-$(CRANE) bin/cyclonedx-gomod-$(CYCLONEDX)
	PATH="$(CURDIR)/bin:$$PATH" bin/goreleaser-$(GORELEASER) release --config deploy/goreleaser.yaml --clean --parallelism 2

# Those of linux/amd64 alone, the image, and the chart, all of which are then tried: installed, verified, run.
# A clone with the tags of a release makes them as well, as the workflow does, for upgrades to it.
# Needs root, debootstrap, lintian and rpm; a quarter of an hour if nothing is in Go's cache.
.PHONY: packages
packages: cloned bin/goreleaser-$(GORELEASER) bin/ko-$(KO) bin/crane-$(CRANE) bin/cyclonedx-gomod-$(CYCLONEDX) bin/helm kube
	LINUX_AMD64_ONLY=1 $(MAKE_DIST) --snapshot
	rm -rf bin/candidate && .ci/tools/release/release.sh v1.99.0 $(CURDIR)/bin/candidate
	cd bin/candidate && git checkout --quiet v1.99.0 && LINUX_AMD64_ONLY=1 $(MAKE_DIST)
	KO=$(CURDIR)/bin/ko-$(KO) CRANE=$(CURDIR)/bin/crane-$(CRANE) HELM=$(CURDIR)/bin/helm deploy/packaging/try.sh bin/dist bin/candidate/bin/dist
	$(GO) test -count=1 -tags packages -timeout 15m $(TESTFLAGS) ./deploy/helm

.PHONY: bin/helm
bin/helm:
	$(ALONE) -C internal/test/stores/servers/helm build -o $(CURDIR)/bin/helm helm.sh/helm/v3/cmd/helm

bin/goreleaser-$(GORELEASER):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install -trimpath -ldflags '-s -w' github.com/goreleaser/goreleaser/v2@$(GORELEASER)
	mv bin/goreleaser $@

bin/ko-$(KO):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install -trimpath -ldflags '-s -w' github.com/google/ko@$(KO)
	mv bin/ko $@

bin/crane-$(CRANE):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install -trimpath -ldflags '-s -w' github.com/google/go-containerregistry/cmd/crane@$(CRANE)
	mv bin/crane $@

bin/cyclonedx-gomod-$(CYCLONEDX):
	GOWORK=off GOBIN=$(CURDIR)/bin $(GO) install -trimpath -ldflags '-s -w' github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX)
	cp bin/cyclonedx-gomod $@

# What is committed is released in a clone, and used from there as from the module
# proxy: what each module brings along, a program of a store and an adapter, the command.
consume:
	$(ALONE) -C .ci/tools test -count=1 -timeout 20m $(TESTFLAGS) ./release

bench:
	$(GO) test -run '^$$' -bench 'Now|ValueInFuture' -count 3 -cpu 1,2 ./internal/test/rules
	$(GO) test -run '^$$' -bench 'Crash|Handover|Store|Outage' -benchtime 1x ./internal/test/rules
	$(GO) test -run '^$$' -bench RequireLeader -count 3 -cpu 1 ./adapters/lehttp
	$(GO) run ./internal/test/apart/bench

# For an hour: many more seeds than make test.
SEEDS  ?= 50000
ROUNDS ?= 100
# GROUPS is how many groups of package shard are played.
GROUPS ?= 100
soak:
	$(GO) test -race -timeout 2h $(TESTFLAGS) ./internal/test/sim -seeds $(SEEDS)
	$(GO) test -race -timeout 1h -run '^TestGroups$$' $(TESTFLAGS) ./shard -seeds $(GROUPS)
	$(GO) test -race -timeout 1h -run TestPromise $(TESTFLAGS) ./cmd/leaderelect -rounds $(ROUNDS)

# Each fuzz test in turn, for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	@set -e; for f in $$(git grep -lE '^func Fuzz' -- '*_test.go'); do \
		for t in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$f); do \
			echo "== $$(dirname $$f) $$t"; \
			(cd $$(dirname $$f) && $(GO) test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) .); done; done

# Known vulnerabilities in the code that users' programs reach: all modules but those that
# only tests and comparisons use.
vuln:
	$(ALONE) -C .ci/tools build -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@set -e; root=$$PWD; for m in $$(git ls-files '*go.mod' | grep -vE '^(\.ci|internal)/'); do \
		echo "== $$(dirname $$m)"; (cd $$(dirname $$m) && $$root/bin/govulncheck ./...); done

