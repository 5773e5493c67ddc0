# The shop of the demonstration: docker build -f deploy/images/demo-app.Dockerfile -t ghcr.io/weftmesh/demo-app:VERSION .
FROM golang:1.26 AS build
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/demo-app ./tools/weft/cmd/weft-demo-app
RUN mkdir -p /root-fs/tmp /root-fs/etc/ssl/certs && chmod 1777 /root-fs/tmp && mv /out/demo-app /root-fs/ && \
    cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/

FROM scratch
COPY --from=build /root-fs/ /
USER 65534:65534
ENTRYPOINT ["/demo-app"]
