# `make help` lists what can be done. It takes GNU make, git, the Go release of go.mod and, for the race detector, a C
# compiler; `make lint` takes shellcheck too.

MODULE  := github.com/oadp-dr/velero-plugin-for-openshift-dr
BINARY  := velero-plugin-for-openshift-dr
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGE   ?= $(BINARY):$(VERSION)

GO ?= go
LDFLAGS := -s -w -X $(MODULE)/pkg/version.version=$(VERSION) -X $(MODULE)/pkg/version.commit=$(COMMIT)
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)"
# What OpenShift runs on.
ARCHES ?= amd64 arm64 ppc64le s390x
# Built on first use from its own module and kept in the go command's build cache, whose key is the content.
GOLANGCI_LINT := $(GO) tool -modfile=test/tools/lint/go.mod golangci-lint

# To run less than all tests: make test-integration RUN=TestName ARGS=-v
RUN  ?= .
ARGS ?=
# Those of test/bed that take a real node.
NODE_TESTS := ^(TestNode|TestWatchdogOfNode)$$
# All but ./test/...
UNIT := . ./pkg/... ./velero-plugins/... ./scripts/...

# The targets use all cores by themselves.
.NOTPARALLEL:
.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the plugin into bin/
	$(BUILD) -o bin/$(BINARY) .

.PHONY: dist
dist: ## Build the plugin for ARCHES into dist/
	@for arch in $(ARCHES); do \
		(set -x; GOOS=linux GOARCH=$$arch $(BUILD) -o dist/linux-$$arch/$(BINARY) .) || exit; \
	done

.PHONY: image
image: dist ## Build the container image IMAGE for ARCHES with docker, podman or buildah
	@VERSION="$(VERSION)" COMMIT="$(COMMIT)" scripts/image.sh "$(IMAGE)" $(ARCHES)

.PHONY: test
test: test-unit test-integration ## Run all tests

.PHONY: test-unit
test-unit: ## Run the unit tests, and the contract test of the built binary
	$(GO) test -race -timeout 15m -run '$(RUN)' $(ARGS) $(UNIT)

# -p 1: each of these packages starts a cluster. -count 1: they build and run programs that the go command does not know
# as inputs of the test, so that it would take an old result for good.
.PHONY: test-integration
test-integration: ## Run the tests against a real Kubernetes API and a real Velero
	@$(GO) run ./test/bed/cmd/tools >/dev/null
	$(GO) test -race -timeout 45m -p 1 -count 1 -run '$(RUN)' -skip '$(NODE_TESTS)' $(ARGS) $$($(GO) list ./test/... | grep -v /test/e2e)

# -C: of a package that is not named, the go command shows what a test prints, here a table, also where all is well.
.PHONY: e2e
e2e: ## Run the tests on a real node: Linux, root, and scripts/node-packages.sh (skipped, with the reason, where it cannot be)
	@$(GO) run ./test/bed/cmd/tools -node >/dev/null
	@why=$$($(GO) run ./test/bed/cmd/tools -why-no-node) && { test -z "$$why" || echo "skipped: $$why"; }
	$(GO) test -timeout 20m -count 1 -run '$(NODE_TESTS)' $(ARGS) ./test/bed
	$(GO) -C test/e2e test -timeout 30m -count 1 -run '$(RUN)' $(ARGS)

.PHONY: cover
cover: ## Run the unit tests and print how much they cover
	$(GO) test -coverpkg=./pkg/...,./velero-plugins/... -coverprofile=cover.out $(UNIT)
	$(GO) tool cover -func=cover.out

.PHONY: tools
tools: ## Build the programs of the test bed into .cache/tools, those of a real node where it can run (a quarter of an hour, once)
	@$(GO) run ./test/bed/cmd/tools -node >/dev/null

.PHONY: demo
demo: ## Take an application through backup, loss and restore, on a real node where one can run (ARGS=-stand-in: on its stand-in)
	@$(GO) run ./test/demo $(ARGS)

.PHONY: demo-recipe
demo-recipe: ## Take a Recipe and its VolumeReplicationGroup from one cluster to another
	@$(GO) run ./test/recipes/demo

.PHONY: lint
lint: ## Check Go source, shell scripts and go.mod
	$(GOLANGCI_LINT) run ./...
	shellcheck .ci/run scripts/*.sh
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: ## Format Go source
	$(GOLANGCI_LINT) fmt ./...

.PHONY: fix
fix: ## Let the linters make the changes that they can make
	$(GOLANGCI_LINT) run --fix ./...

.PHONY: verify
verify: ## Check that go.mod is tidy and that the modules on this machine are those of go.sum
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: ci
ci: ## Do what CI does
	.ci/run

.PHONY: clean
clean: ## Remove what was built here; the programs of the test bed in .cache stay
	rm -rf bin dist cover.out
