# The proxy, and the helper that an injected pod calls by three names beside it:
# docker build -f deploy/images/proxy.Dockerfile -t ghcr.io/weftmesh/proxy:VERSION .
FROM golang:1.26 AS build
ARG VERSION=dev
ARG COMMIT=
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    mkdir -p /out && CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -o /out/ \
    -ldflags "-s -w -X github.com/weftmesh/weft/services/kit/build.version=${VERSION} -X github.com/weftmesh/weft/services/kit/build.commit=${COMMIT}" \
    ./proxy/cmd/weft-proxy ./proxy/cmd/weft-init
# linkerd-init does not run as root: its file must let it have what its container allows. Permitted only: with the
# effective bit, a container that allows nothing couldn't even start the file by its other names.
RUN apt-get update && apt-get install -y --no-install-recommends libcap2-bin && rm -rf /var/lib/apt/lists/*
RUN mkdir -p /root-fs/usr/lib/linkerd /root-fs/bin /root-fs/tmp && chmod 1777 /root-fs/tmp && cd /root-fs/usr/lib/linkerd && \
    mv /out/weft-proxy linkerd2-proxy-identity && mv /out/weft-init linkerd2-proxy-init && \
    ln -s linkerd2-proxy-init linkerd2-network-validator && ln -s linkerd2-proxy-init linkerd-await && \
    ln -s /usr/lib/linkerd/linkerd2-proxy-init /root-fs/bin/sleep && \
    setcap cap_net_admin=p linkerd2-proxy-init

FROM scratch
COPY --from=build /root-fs/ /
USER 65534:65534
ENTRYPOINT ["/usr/lib/linkerd/linkerd2-proxy-identity"]
