# Every target works on every module: go.work is the only list of them.
MODS    := $(shell go list -m -f '{{.Dir}}')
BIN     := $(CURDIR)/.bin
RACEBIN := $(BIN)/race
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -X github.com/weftmesh/weft/services/kit/build.version=$(VERSION) -X github.com/weftmesh/weft/services/kit/build.commit=$(COMMIT)
# Without golang.org/x/net/trace in grpc, and so without templates, whose calls by name make the linker keep every method.
TAGS    := grpcnotrace
export PATH := $(BIN)/tools:$(PATH)
export GOPRIVATE := github.com/weftmesh/weft

# The Kubernetes of test clusters; the version in tools/kube/go.mod is this one.
KUBEVERSION := v1.37.2
KUBELDFLAGS := -s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	-X $(p).gitVersion=$(KUBEVERSION) -X $(p).gitMajor=1 -X $(p).gitMinor=37 -X $(p).gitTreeState=clean \
	-X $(p).gitCommit=0000000000000000000000000000000000000000 -X $(p).buildDate=1970-01-01T00:00:00Z) \
	-X helm.sh/helm/v3/internal/version.version=v3.22.0

# Packages of the binaries; each is called like its directory.
MAINS := ./services/watcher ./services/destination ./services/policy ./services/identity ./services/injector \
	./services/mirror ./services/heartbeat ./proxy/cmd/weft-proxy ./proxy/cmd/weft-init ./proxy/cmd/weft-cni ./proxy/cmd/weft-debug \
	./tools/weft ./tools/weft/cmd/weft-demo-app

help:         ## print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile
build:        ## compile every package, and every binary into .bin
	go build -o /dev/null work
	@$(MAKE) --no-print-directory binaries
demo: binaries ## run a whole small mesh on this machine, with a live table; Ctrl-C stops it
	$(BIN)/weft demo
test: racebins ## run every test with the race detector, the process tests and the demo's check
	WEFT_BIN=$(RACEBIN) WEFT_BIN_SUM=$$(cat $(RACEBIN)/* | sha256sum) WEFT_KUBE_BIN=$(BIN)/kube go test -race -p 3 -timeout 30m work
	cd proxy && go test -race -cpu 1 -timeout 10m ./internal/wire ./internal/h1 ./internal/relay ./internal/door ./internal/endpoint # what goes out together there
	$(RACEBIN)/weft demo --check
race: test    ## the same as test, which always runs with the race detector
check: binaries ## run the demo for a few seconds and verify mTLS, denial and loss of a replica
	$(BIN)/weft demo --check
cases: racebins ## run the case files of CASES=dir against the real processes; ONLY=text narrows
	cd e2e && WEFT_BIN=$(RACEBIN) go test -race -count 1 -parallel 8 -timeout 30m ./cases -args -cases $(abspath $(or $(CASES),e2e/cases/testdata)) -only '$(ONLY)'
cases-kube: racebins clusterbins ## run the cases of admission and status in CASES=dir through a real API server
	cd e2e && WEFT_BIN=$(RACEBIN) WEFT_KUBE_BIN=$(BIN)/kube WEFT_CASES=$(abspath $(or $(CASES),e2e/cases/testdata)) go test -race -count 1 -timeout 30m -run 'Cases$$' ./kube
sim:          ## SEEDS=10000 random stories of the control plane on a bad network, in virtual time; SEED=first
	cd e2e && WEFT_SEED=$(or $(SEED),1) WEFT_SEEDS=$(or $(SEEDS),10000) go test -count 1 -timeout 4h -run AnyFaults ./sim
bench: binaries ## measure the control plane at PODS=150000 against its budgets, as a table and .bin/scale.json; ONLY=start,hop narrows
	cd e2e && WEFT_BIN=$(BIN) go test -count 1 -v -timeout 30m ./bench/scale -args -pods $(or $(PODS),150000) -only '$(ONLY)' -json $(BIN)/scale.json
bench-proxy: binaries ## measure the proxy beside nginx, haproxy and net/http, as a table and .bin/proxy.json
	cd e2e && WEFT_BIN=$(BIN) go test -count 1 -v -timeout 1h ./bench/proxy -args -launches 5 -rounds 40 -round 250ms -rate 1000 -volume 128 -settle 20s -json $(BIN)/proxy.json
robust: racebins ## break a mesh of real processes for FOR=5m and judge what its clients were told; SEED=, GAP=3s, NATS=docker
	cd e2e && WEFT_BIN=$(RACEBIN) WEFT_KUBE_BIN=$(BIN)/kube go test -race -count 1 -v -timeout 2h -run TestRobust ./robust \
		-args -for $(or $(FOR),5m) -gap $(or $(GAP),3s) -seed $(or $(SEED),0) -nats $(or $(NATS),process)
soak: binaries ## carry mixed traffic through two proxies for FOR=10m while everything changes
	cd e2e && WEFT_BIN=$(BIN) go test -count 1 -v -timeout 4h ./soak -args -for $(or $(FOR),10m)
lint: tools   ## run the linters
	golangci-lint run $(addsuffix /...,$(MODS))
	cd proto && buf lint
fmt: tools    ## format the code
	golangci-lint fmt $(MODS)
	cd proto && buf format -w
gen: tools    ## make the generated files again
	cd proto && buf generate
tidy:         ## agree on dependency versions, then tidy each go.mod
	go work sync
	@set -e; for m in $(MODS); do (cd $$m && go mod tidy); done
alone:        ## each module builds without the workspace and is tidy
	@set -e; for m in $(MODS); do echo "$$m"; (cd $$m && GOWORK=off go mod tidy -diff && GOWORK=off go vet ./...); done
tools: $(BIN)/tools/.stamp ## install the pinned linters and generators
host:         ## install what the network and cluster tests need of the system, as root on Debian
	@need=""; \
	for c in nft:nftables ip:iproute2 iptables:iptables conntrack:conntrack containerd:containerd runc:runc etcd:etcd-server; do \
		PATH=$$PATH:/usr/sbin:/sbin command -v $${c%%:*} >/dev/null || need="$$need $${c#*:}"; done; \
	[ -x /usr/lib/cni/ptp ] || need="$$need containernetworking-plugins"; \
	if [ -z "$$need" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then echo "installing$$need"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need >/dev/null \
		|| echo "could not be installed:$$need; tests that need them will be skipped"; \
	else echo "missing, and can't be installed here:$$need; tests that need them will be skipped"; fi
clusterbins: $(BIN)/kube/.stamp ## build Kubernetes, CoreDNS, helm and NATS for test clusters, once
$(BIN)/kube/.stamp: tools/kube/go.mod tools/kube/go.sum $(wildcard tools/kube/*/*.go)
	@mkdir -p $(BIN)/kube
	@echo "building Kubernetes $(KUBEVERSION) for test clusters: about ten minutes on two idle cores the first time, seconds from Go's cache"
	@began=$$(date +%s); cd tools/kube && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags '$(KUBELDFLAGS)' -o $(BIN)/kube/ \
		./hyperkube ./coredns helm.sh/helm/v3/cmd/helm github.com/nats-io/nats-server/v2 \
		&& ln -sf hyperkube $(BIN)/kube/kubectl && echo "built in $$(($$(date +%s) - began)) s: $(BIN)/kube"
	@touch $@
cluster: clusterbins clustertool ## start a Kubernetes on this machine, as root; NODES=2 gives it a second node
	$(BIN)/weft-cluster up -nodes $(or $(NODES),1)
cluster-down: clustertool ## end every cluster in .bin/cluster, without a trace
	$(BIN)/weft-cluster down -all
images: clusterbins clustertool ## build Weft's images from static binaries into .bin/images; ONLY=a,b narrows
	$(BIN)/weft-cluster images -ldflags '$(LDFLAGS)' -only '$(ONLY)'
clustertool:  ## build the command that starts clusters into .bin
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/ ./e2e/cmd/weft-cluster
e2e-cluster: clusterbins ## prove the promises on a cluster started here, as root, or on KUBECONFIG's (REGISTRY=, TAG=, NATS=image); RATE=, RUN=text
	@[ -n "$(KUBECONFIG)" ] || $(MAKE) --no-print-directory images
	@mkdir -p $(BIN) && go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./tools/weft
	cd e2e && WEFT_CLUSTER=1 WEFT_BIN=$(BIN) go test -count 1 -v -timeout 40m -run 'TestPromises/(helm_installs|$(or $(RUN),.*))' ./promises \
		-args $(if $(REGISTRY),-registry $(REGISTRY)) $(if $(TAG),-tag $(TAG)) $(if $(NATS),-nats $(NATS)) $(if $(RATE),-rate $(RATE))
e2e-ha: clusterbins images ## prove the promises that take three nodes: one that dies, the trust anchor replaced, the move to CNI; as root, RATE=
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./tools/weft
	cd e2e && WEFT_CLUSTER=1 WEFT_BIN=$(BIN) go test -count 1 -v -timeout 60m -run TestHighAvailability ./promises -args $(if $(RATE),-rate $(RATE))
ci:           ## everything that must hold before a change lands
	$(MAKE) tools
	$(MAKE) gen && git diff --exit-code
	golangci-lint fmt --diff $(MODS)
	$(MAKE) lint
	$(MAKE) dead
	go work sync && git diff --exit-code
	$(MAKE) alone
	$(MAKE) host
	$(MAKE) clusterbins || echo "Kubernetes could not be built, for the reason above: tests that need it will be skipped"
	$(MAKE) test
	@if [ -d ../shared/cases ]; then $(MAKE) cases CASES=../shared/cases; fi
	$(MAKE) clustertool
	@if $(BIN)/weft-cluster -dir $(BIN)/try up && $(BIN)/weft-cluster -dir $(BIN)/try down; then \
		$(MAKE) e2e-cluster RATE=30 RUN='three_tiers|where_all_is_denied|helm_uninstall'; \
	else \
		echo "no cluster can be started on this machine, for the reason above: the promises are not tested here"; \
	fi
dead: tools   ## code that nothing reaches
	@out=$$(deadcode -test work | grep -v 'unreachable func: Example' || true) && echo "$$out" && test -z "$$out"
binaries:     ## build every binary into .bin
	@mkdir -p $(BIN)
	@echo "building (a few minutes the first time, and it fetches modules; seconds afterwards)"
	@go build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ $(MAINS)
racebins:     ## build every binary with the race detector into .bin/race
	@mkdir -p $(RACEBIN)
	go build -race -ldflags '$(LDFLAGS)' -o $(RACEBIN)/ $(MAINS)
$(BIN)/tools/.stamp: tools/pin/go.sum
	cd tools/pin && GOWORK=off GOBIN=$(BIN)/tools go install tool
	@touch $@
.PHONY: help build demo test race check cases bench-proxy robust soak lint fmt gen tidy alone tools ci dead host binaries racebins \
	clusterbins cluster cluster-down clustertool images e2e-cluster e2e-ha cases-kube sim bench
