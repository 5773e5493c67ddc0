# The debug container of a pod: docker build -f deploy/images/debug.Dockerfile -t ghcr.io/weftmesh/debug:VERSION .
FROM golang:1.26 AS build
ARG VERSION=dev
ARG COMMIT=
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 go build -trimpath -o /out/weft-debug \
    -ldflags "-s -w -X github.com/weftmesh/weft/services/kit/build.version=${VERSION} -X github.com/weftmesh/weft/services/kit/build.commit=${COMMIT}" \
    ./proxy/cmd/weft-debug
# The container's probes call true.
RUN mkdir -p /root-fs/tmp /root-fs/bin /root-fs/etc/ssl/certs && chmod 1777 /root-fs/tmp && mv /out/weft-debug /root-fs/ && \
    ln -s /weft-debug /root-fs/bin/true && cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/

FROM scratch
COPY --from=build /root-fs/ /
USER 0:0
ENTRYPOINT ["/weft-debug"]
