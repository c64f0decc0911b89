# One short target for each kind of proof. `make test` needs nothing but Go.

GO      ?= go
GOLANGCI ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TARGETS := amd64 arm64 arm riscv64
# Largest amd64 binary, in bytes.
LIMIT   := 30000000
FUZZ    ?= 20s

.PHONY: build test race vet lint vectors interop cross bench fuzz

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/sluice ./cmd/sluice

test:
	$(GO) test -timeout 10m ./...

race:
	CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...

# Formatting and what the compiler's own checker says. Needs nothing but Go.
vet:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted by gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags interop ./...

# The linter is built from its Go module.
lint: vet
	$(GOLANGCI) run --timeout 10m

# Records the golden bytes anew from the real Java client, name server and broker.
vectors:
	test/vectors/run

# Real programs against us and us against real servers. Needs a JDK, Maven and npm.
interop:
	$(GO) test -tags interop -count=1 -timeout 25m ./test/interop/...

cross:
	@for arch in $(TARGETS); do \
		GOOS=linux GOARCH=$$arch GOARM=7 CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/sluice-linux-$$arch ./cmd/sluice || exit 1; \
		printf '%-8s %10d bytes\n' $$arch $$(wc -c < bin/sluice-linux-$$arch); \
	done
	@test $$(wc -c < bin/sluice-linux-amd64) -le $(LIMIT) || { echo "the amd64 binary is larger than $(LIMIT) bytes"; exit 1; }

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Every fuzz target for $(FUZZ).
fuzz:
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6-); do \
			echo "$$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) $$dir || exit 1; \
		done; \
	done
