{{/* The bus: who is on it, where it is, and what each may say and hear. */}}

{{/* weft.bus.services: who has a certificate, as JSON. mirror and cli are for processes outside this chart. */}}
{{- define "weft.bus.services" -}}
{{ list "cli" "destination" "heartbeat" "identity" "injector" "mirror" "policy" "watcher" | toJson }}
{{- end }}

{{- define "weft.bus.servers" -}}
{{- if .Values.nats.enabled -}}
tls://weft-nats.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{/* weft.bus.ports: the ports of the bus's servers, commas between. */}}
{{- define "weft.bus.ports" -}}
{{- $ports := list }}
{{- range splitList "," (include "weft.bus.servers" .) }}
{{- $ports = append $ports (regexFind ":[0-9]+$" ((. | trim | urlParse).host) | trimPrefix ":" | default "4222") }}
{{- end }}
{{- $ports | uniq | join "," }}
{{- end }}

{{/* weft.bus.args: {root, service}. */}}
{{- define "weft.bus.args" -}}
- -bus.servers={{ include "weft.bus.servers" .root }}
- -bus.cluster={{ .root.Values.bus.cluster }}
{{- if eq .root.Values.bus.auth "credentials" }}
- -bus.credentials=/var/run/weft/bus/nats.creds
{{- else }}
- -bus.cert=/var/run/weft/bus/tls.crt
- -bus.key=/var/run/weft/bus/tls.key
{{- end }}
- -bus.ca=/var/run/weft/bus/ca.crt
{{- end }}

{{- define "weft.bus.mount" -}}
- {name: bus, mountPath: /var/run/weft/bus, readOnly: true}
{{- end }}

{{- define "weft.bus.volume" -}}
- name: bus
  secret: {secretName: {{ index .root.Values.bus.secrets .service | default (printf "weft-bus-%s" .service) }}}
{{- end }}

{{/* weft.nats.names: the names in the servers' certificate, as JSON. */}}
{{- define "weft.nats.names" -}}
{{- $ns := .Release.Namespace }}{{ $domain := .Values.clusterDomain -}}
{{- list (printf "weft-nats.%s.svc.%s" $ns $domain) (printf "weft-nats.%s.svc" $ns) (printf "weft-nats.%s" $ns) "weft-nats"
    (printf "*.weft-nats-headless.%s.svc.%s" $ns $domain) (printf "*.weft-nats-headless.%s.svc" $ns) "localhost" | toJson }}
{{- end }}

{{/*
weft.nats.users: the permissions, as NATS writes them. A certificate's DNS name is the user. Only the watcher may say
what the log says and ask what Kubernetes should be told, which only policy answers; everybody who keeps a copy asks
others for it and answers them, so those need asks, chunks and replies; whoever only announces itself hears nothing at
all. Replies go to inboxes: an answerer may reply once to what it was asked and nowhere else (allow_responses), an
asker hears its own service's inboxes only.
*/}}
{{- define "weft.nats.users" -}}
{{- $b := printf "weft.%s" .Values.bus.cluster -}}
{{- $hear := printf "\"%s.log\", \"%s.ask peers\", \"%s.peer.*\"" $b $b $b -}}
{{- $say := printf "[\"%s.ask\", \"%s.peer.*\", \"%s.presence\"]" $b $b $b -}}
{user: "watcher.bus.weft", permissions: {
  publish: ["{{ $b }}.log", "{{ $b }}.ask", "{{ $b }}.peer.*", "{{ $b }}.presence", "{{ $b }}.status"],
  subscribe: [{{ $hear }}, "{{ $b }}.presence", "_INBOX.watcher.>"], allow_responses: true}}
{user: "policy.bus.weft", permissions: {
  publish: {{ $say }}, subscribe: [{{ $hear }}, "{{ $b }}.status status", "_INBOX.policy.>"], allow_responses: true}}
{{- range list "destination" "injector" "mirror" }}
{user: "{{ . }}.bus.weft", permissions: {
  publish: {{ $say }}, subscribe: [{{ $hear }}, "_INBOX.{{ . }}.>"], allow_responses: true}}
{{- end }}
{user: "identity.bus.weft", permissions: {
  publish: ["{{ $b }}.presence"], subscribe: {deny: ">"}}}
{user: "heartbeat.bus.weft", permissions: {
  publish: ["{{ $b }}.presence"], subscribe: ["{{ $b }}.presence", "{{ $b }}.roll roll"], allow_responses: true}}
{user: "cli.bus.weft", permissions: {
  publish: ["{{ $b }}.roll"], subscribe: ["{{ $b }}.presence", "_INBOX.cli.>"]}}
{{- end }}

{{/* weft.nats.conf: no JetStream: nothing that a server holds is relied on, so it has no disk. */}}
{{- define "weft.nats.conf" -}}
{{- $of := .Values.nats -}}
server_name: $POD_NAME
listen: {{ printf "%s:4222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
http: {{ printf "%s:8222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
max_payload: 1MB
max_connections: {{ $of.maxConnections | int }}
write_deadline: "5s"
ping_interval: "20s"
ping_max: 3
debug: {{ eq $of.logLevel "debug" }}
tls {
  cert_file: /var/run/nats/tls/tls.crt
  key_file: /var/run/nats/tls/tls.key
  ca_file: /var/run/nats/tls/ca.crt
  verify_and_map: true
  min_version: "1.3"
  timeout: 5
}
authorization {
  users: [
{{ include "weft.nats.users" . | indent 4 }}
  ]
}
{{- if gt (int $of.replicas) 1 }}
cluster {
  name: weft
  listen: {{ printf "%s:6222" (ternary "0.0.0.0" "[::]" .Values.disableIPv6) | quote }}
  no_advertise: true
  connect_retries: 30
  tls {
    cert_file: /var/run/nats/tls/tls.crt
    key_file: /var/run/nats/tls/tls.key
    ca_file: /var/run/nats/tls/ca.crt
    verify: true
    min_version: "1.3"
    timeout: 5
  }
  routes: [
  {{- range $i := until (int $of.replicas) }}
    "tls://weft-nats-{{ $i }}.weft-nats-headless.{{ $.Release.Namespace }}.svc.{{ $.Values.clusterDomain }}:6222"
  {{- end }}
  ]
}
{{- end }}
{{- with $of.extraConfig }}
{{ . }}
{{- end }}
{{- end }}
