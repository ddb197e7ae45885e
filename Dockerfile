# syntax=docker/dockerfile:1
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=1 go build -trimpath -ldflags "-s -w -X main.release=${VERSION}" -o /out/skein ./cmd/skein \
 && mkdir -p /out/data

# The binary needs the C library of the build image's release and nothing else.
FROM gcr.io/distroless/base-debian12:nonroot
COPY --from=build /out/skein /skein
COPY --from=build --chown=nonroot:nonroot /out/data /var/lib/skein
USER nonroot
VOLUME /var/lib/skein
EXPOSE 8815 8816 31401 31480 31501
STOPSIGNAL SIGTERM
ENTRYPOINT ["/skein"]
CMD ["dev", "--data", "/var/lib/skein", "--flight", "0.0.0.0:8815", "--http", "0.0.0.0:8816", "--insecure"]
