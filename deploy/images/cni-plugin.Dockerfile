# The network plugin and what installs it: docker build -f deploy/images/cni-plugin.Dockerfile -t ghcr.io/weftmesh/cni-plugin:VERSION .
FROM golang:1.26 AS build
ARG VERSION=dev
ARG COMMIT=
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 go build -trimpath -o /out/weft-cni \
    -ldflags "-s -w -X github.com/weftmesh/weft/services/kit/build.version=${VERSION} -X github.com/weftmesh/weft/services/kit/build.commit=${COMMIT}" \
    ./proxy/cmd/weft-cni
RUN mkdir -p /root-fs/tmp /root-fs/etc/ssl/certs && chmod 1777 /root-fs/tmp && mv /out/weft-cni /root-fs/ && \
    cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/

# It writes into directories of the machine that only root may change.
FROM scratch
COPY --from=build /root-fs/ /
USER 0:0
ENTRYPOINT ["/weft-cni"]
