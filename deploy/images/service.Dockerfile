# One of the services: docker build -f deploy/images/service.Dockerfile --build-arg SERVICE=watcher -t ghcr.io/weftmesh/watcher:VERSION .
# The context is the repository's root, since the modules replace each other by path.
FROM golang:1.26 AS build
ARG SERVICE
ARG VERSION=dev
ARG COMMIT=
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -o /out/${SERVICE} \
    -ldflags "-s -w -X github.com/weftmesh/weft/services/kit/build.version=${VERSION} -X github.com/weftmesh/weft/services/kit/build.commit=${COMMIT}" \
    ./services/${SERVICE}
# An entrypoint can't hold a variable, so the image's only name for it is fixed here.
RUN mkdir -p /root-fs/etc/ssl/certs /root-fs/tmp && chmod 1777 /root-fs/tmp && mv /out/${SERVICE} /root-fs/${SERVICE} && \
    ln -s /${SERVICE} /root-fs/entrypoint && cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/

FROM scratch
COPY --from=build /root-fs/ /
USER 2103:2103
ENTRYPOINT ["/entrypoint"]
